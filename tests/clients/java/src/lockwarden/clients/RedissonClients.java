package lockwarden.clients;

import static lockwarden.clients.Checks.LONG_MS;
import static lockwarden.clients.Checks.PATIENCE_MS;
import static lockwarden.clients.Checks.must;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BiFunction;
import java.util.function.Function;
import lockwarden.clients.Server.Lease;
import org.redisson.Redisson;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.BaseMasterSlaveServersConfig;
import org.redisson.config.Config;
import org.redisson.config.SentinelServersConfig;

/**
 * Redisson's locks. A party is a thread of one of two Redisson clients, which stand for two JVMs; each has a
 * pool of connections, so that a lock is taken over one and released over another.
 */
final class RedissonClients extends Client {
    /** The TTL of a lock that the watchdog renews; it does so every third of it. Redisson's own is 30 s. */
    private static final long WATCHDOG_MS = 3_000;

    /** The two JVMs; all kinds of lock use the same, as an application does. */
    private static final List<RedissonClient> JVMS = new ArrayList<>();

    /** Two more, which ask sentinels where the server is, or a cluster who has which slots. */
    private static final List<RedissonClient> ASKING_JVMS = new ArrayList<>();

    private static final String SENTINEL = "redisson-sentinel";
    private static final String CLUSTER = "redisson-cluster";

    private final String slug;
    private final String object;
    private final BiFunction<RedissonClient, String, RLock> lock;
    private final AtomicInteger parties = new AtomicInteger();

    private RedissonClients(String slug, String object, BiFunction<RedissonClient, String, RLock> lock) {
        this.slug = slug;
        this.object = object;
        this.lock = lock;
    }

    static List<Client> all() {
        return List.of(
                new RedissonClients("redisson-lock", "RLock", RedissonClient::getLock),
                new RedissonClients(SENTINEL, "RLock, by Sentinel", RedissonClient::getLock),
                new RedissonClients(CLUSTER, "RLock, useClusterServers", RedissonClient::getLock),
                new RedissonClients("redisson-fair", "fair lock", RedissonClient::getFairLock),
                new RedissonClients("redisson-spin", "spin lock", RedissonClient::getSpinLock),
                new RedissonClients(
                        "redisson-read-write",
                        "read-write lock",
                        (jvm, name) -> jvm.getReadWriteLock(name).writeLock()),
                new RedissonClients("redisson-fenced", "fenced lock", RedissonClient::getFencedLock),
                new RedissonClients("redisson-multi", "multi-lock", RedissonClients::three),
                new RedissonClients(
                        "redisson-faster-multi",
                        "multi-lock in one hash",
                        (jvm, name) -> jvm.getMultiLock(name, List.of("x", "y"))));
    }

    private static synchronized RedissonClient jvm(int number) {
        while (JVMS.size() < 2) {
            Config config = new Config();
            config.setLockWatchdogTimeout(WATCHDOG_MS).setThreads(4).setNettyThreads(4);
            config.useSingleServer()
                    .setAddress("redis://" + Server.HOST + ":" + Server.PORT)
                    .setConnectionMinimumIdleSize(2)
                    .setConnectionPoolSize(8)
                    .setSubscriptionConnectionMinimumIdleSize(1)
                    .setSubscriptionConnectionPoolSize(4);
            JVMS.add(Redisson.create(config));
        }
        return JVMS.get(number % 2);
    }

    private static synchronized RedissonClient askingJvm(int number) {
        while (ASKING_JVMS.size() < 2) {
            Config config = new Config();
            config.setLockWatchdogTimeout(WATCHDOG_MS).setThreads(4).setNettyThreads(4);
            BaseMasterSlaveServersConfig<?> asking;
            if (Server.CLUSTER == null) {
                SentinelServersConfig sentinels = config.useSentinelServers().setMasterName(Server.NAME);
                sentinels.setSentinelAddresses(
                        Server.SENTINELS.stream().map(address -> "redis://" + address).toList());
                asking = sentinels;
            } else {
                asking = config.useClusterServers().addNodeAddress("redis://" + Server.CLUSTER);
            }
            asking.setMasterConnectionMinimumIdleSize(2)
                    .setMasterConnectionPoolSize(8)
                    .setSubscriptionConnectionMinimumIdleSize(1)
                    .setSubscriptionConnectionPoolSize(4);
            ASKING_JVMS.add(Redisson.create(config));
        }
        return ASKING_JVMS.get(number % 2);
    }

    private static RLock three(RedissonClient jvm, String name) {
        return jvm.getMultiLock(three(name).stream().map(jvm::getLock).toArray(RLock[]::new));
    }

    private static List<String> three(String name) {
        return List.of(name + ":1", name + ":2", name + ":3");
    }

    @Override
    String slug() {
        return slug;
    }

    @Override
    String name() {
        return "Redisson " + object;
    }

    @Override
    String library() {
        return "redisson";
    }

    /** Of three locks the value and the TTL of the first are looked at. */
    @Override
    String key(String name) {
        return keys(name).get(0);
    }

    @Override
    List<String> keys(String name) {
        return slug.equals("redisson-multi") ? three(name) : List.of(name);
    }

    /** The one-hash lock keeps the end of each holder's lease in the hash too. */
    @Override
    String owners(String value) {
        return value.replaceAll("(:expire_time)=\\d+", "$1");
    }

    @Override
    Party party() {
        int number = parties.getAndIncrement();
        RedissonClient jvm = slug.equals(SENTINEL) || slug.equals(CLUSTER) ? askingJvm(number) : jvm(number);
        return new Holder(name -> lock.apply(jvm, name));
    }

    /** Somebody in a certain JVM, with a lock of a certain kind. */
    private static Party holder(RedissonClient jvm, BiFunction<RedissonClient, String, RLock> kind) {
        return new Holder(name -> kind.apply(jvm, name));
    }

    @Override
    Map<String, Check> more(Checks checks) {
        Map<String, Check> more = new LinkedHashMap<>();
        more.put("watchdog", checks::watchdog);
        more.put("reentrance", checks::reentrance);
        // A waiter that comes in the last millisecond of the one-hash lock takes over a hash that ends with it.
        if (!slug.equals("redisson-faster-multi")) {
            more.put("waiting for the end", checks::waitForTheEnd);
        }
        if (!slug.equals("redisson-spin")) {
            more.put("wake-up", checks::wakeUp);
        }
        // The fair lock answers that a free one was released.
        if (!slug.equals("redisson-fair")) {
            more.put("release too often", checks::releaseTooOften);
        }
        switch (slug) {
            case "redisson-lock" -> {
                more.put("thief in the same JVM", name -> threadOfTheSame(checks, name));
                more.put("force-unlock", name -> forceUnlock(checks, name));
            }
            case "redisson-fair" -> more.put("order", name -> order(checks, name));
            case "redisson-read-write" -> {
                more.put("readers share", name -> readers(checks, name));
                more.put("downgrade", name -> downgrade(checks, name));
                more.put("reader's watchdog", name -> readersWatchdog(checks, name));
            }
            case "redisson-fenced" -> more.put("fence grows", name -> fence(checks, name));
            case "redisson-multi" -> more.put("all or none", name -> allOrNone(checks, name));
            case "redisson-faster-multi" -> more.put("disjoint holders", name -> disjoint(checks, name));
            default -> {}
        }
        return more;
    }

    private void threadOfTheSame(Checks checks, String name) throws Exception {
        Seat alice = checks.seat(holder(jvm(0), lock));
        Seat thief = checks.seat(holder(jvm(0), lock));
        must(alice.acquires(name, LONG_MS), "a free lock was not granted");
        Lease lease = checks.lease(name);
        must(!thief.acquires(name, LONG_MS), "a held lock was granted");
        must(thief.releases(name) == Party.Answer.REFUSED, "another thread's release went through");
        checks.mustStay(name, lease);
        must(alice.releases(name) == Party.Answer.DONE, "the holder's release was refused");
    }

    /** What Redisson offers for cleaning up: no owner is asked for, so it must be the holder's JVM. */
    private void forceUnlock(Checks checks, String name) throws Exception {
        Seat alice = checks.seat(holder(jvm(0), lock));
        must(alice.acquires(name, LONG_MS), "a free lock was not granted");
        must(lock.apply(jvm(0), name).forceUnlock(), "the holder's JVM was refused");
        must(checks.isFree(name), "a released lock is still there");
    }

    private void order(Checks checks, String name) throws Exception {
        Seat holder = checks.somebody();
        Seat first = checks.somebody();
        Seat second = checks.somebody();
        List<String> order = new ArrayList<>();
        must(holder.acquires(name, LONG_MS), "a free lock was not granted");
        Future<Boolean> one = first.start(() -> passThrough(first.party, name, "first", order));
        String queue = "redisson_lock_queue:{" + name + "}";
        Checks.wait("the first is in the queue", () -> checks.server.listLength(queue) == 1);
        Future<Boolean> two = second.start(() -> passThrough(second.party, name, "second", order));
        Checks.wait("the second is in the queue", () -> checks.server.listLength(queue) == 2);
        must(holder.releases(name) == Party.Answer.DONE, "the holder's release was refused");
        must(Seat.result(one) && Seat.result(two), "somebody waited in vain");
        must(order.equals(List.of("first", "second")), "they were granted the lock as %s", order);
    }

    private boolean passThrough(Party party, String name, String who, List<String> order) throws Exception {
        boolean granted = party.acquire(name, LONG_MS, PATIENCE_MS);
        if (granted) {
            order.add(who); // Only one at a time is here: that is what the lock is for.
            must(party.release(name) == Party.Answer.DONE, "the release of the %s was refused", who);
        }
        return granted;
    }

    private void readers(Checks checks, String name) throws Exception {
        Seat alice = checks.seat(holder(jvm(0), RedissonClients::reading));
        Seat bob = checks.seat(holder(jvm(1), RedissonClients::reading));
        Seat writer = checks.somebody();
        must(alice.acquires(name, LONG_MS), "a free lock was not granted to a reader");
        must(bob.acquires(name, LONG_MS), "a second reader was refused");
        must(!writer.acquires(name, LONG_MS), "a writer was let in beside readers");
        must(alice.releases(name) == Party.Answer.DONE, "a reader's release was refused");
        must(!checks.isFree(name), "one reader's release freed the other's lock");
        must(alice.releases(name) == Party.Answer.REFUSED, "a reader's second release went through");
        must(bob.releases(name) == Party.Answer.DONE, "the last reader's release was refused");
        must(writer.acquires(name, LONG_MS), "a writer was refused after the readers");
        must(!alice.acquires(name, LONG_MS), "a reader was let in beside a writer");
        must(writer.releases(name) == Party.Answer.DONE, "the writer's release was refused");
    }

    private static RLock reading(RedissonClient jvm, String name) {
        return jvm.getReadWriteLock(name).readLock();
    }

    private void downgrade(Checks checks, String name) throws Exception {
        Seat bob = checks.seat(holder(jvm(1), RedissonClients::reading));
        Seat alice = checks.somebody();
        RReadWriteLock hers = jvm(parties.get() - 1).getReadWriteLock(name);
        must(alice.acquires(name, LONG_MS), "a free lock was not granted to a writer");
        must(
                alice.does(() -> hers.readLock().tryLock(0, LONG_MS, TimeUnit.MILLISECONDS)),
                "the writer was not allowed to read");
        must(alice.releases(name) == Party.Answer.DONE, "the writer's release was refused");
        must(bob.acquires(name, LONG_MS), "a reader was refused beside a reader");
        alice.does(
                () -> {
                    hers.readLock().unlock();
                    return null;
                });
        must(bob.releases(name) == Party.Answer.DONE, "the last reader's release was refused");
        must(checks.isFree(name), "a released lock is still there");
    }

    private void readersWatchdog(Checks checks, String name) throws Exception {
        Seat alice = checks.seat(holder(jvm(0), RedissonClients::reading));
        must(alice.does(() -> alice.party.acquireKept(name)), "a free lock was not granted to a reader");
        Lease first = checks.lease(name);
        Checks.wait(
                "the lock is renewed beyond its first end",
                () -> checks.lease(name).endsAt() > first.endsAt());
        must(alice.releases(name) == Party.Answer.DONE, "a reader's release was refused");
        must(checks.isFree(name), "a released lock is still there");
    }

    private void fence(Checks checks, String name) throws Exception {
        RFencedLock hers = jvm(0).getFencedLock(name);
        RFencedLock his = jvm(1).getFencedLock(name);
        // With a time to wait: without one tryLockAndGetToken() waits for ever.
        Long first = hers.tryLockAndGetToken(0, LONG_MS, TimeUnit.MILLISECONDS);
        must(first != null, "a free lock was not granted");
        must(his.tryLockAndGetToken(0, LONG_MS, TimeUnit.MILLISECONDS) == null, "a held lock was granted");
        hers.unlock();
        Long second = his.tryLockAndGetToken(0, LONG_MS, TimeUnit.MILLISECONDS);
        must(second != null, "a released lock was not granted");
        must(second > first, "after fence %d came %d", first, second);
        his.unlock();
    }

    private void allOrNone(Checks checks, String name) throws Exception {
        Seat alice = checks.somebody();
        Seat bob = checks.seat(holder(jvm(1), RedissonClient::getLock));
        List<String> keys = three(name);
        must(bob.acquires(keys.get(2), LONG_MS), "a free lock was not granted");
        must(!alice.acquires(name, LONG_MS, 200), "three were granted though one was held");
        for (String key : keys.subList(0, 2)) {
            must(checks.server.isFree(key), "%s was left behind", key);
        }
        must(bob.releases(keys.get(2)) == Party.Answer.DONE, "the holder's release was refused");
        must(alice.acquires(name, LONG_MS), "three free locks were not granted");
        must(alice.releases(name) == Party.Answer.DONE, "the holder's release was refused");
        must(checks.isFree(name), "a released lock is still there");
    }

    private void disjoint(Checks checks, String name) throws Exception {
        Seat alice = checks.seat(holder(jvm(0), (jvm, key) -> jvm.getMultiLock(key, List.of("x", "y"))));
        Seat bob = checks.seat(holder(jvm(1), (jvm, key) -> jvm.getMultiLock(key, List.of("y", "z"))));
        Seat carol = checks.seat(holder(jvm(1), (jvm, key) -> jvm.getMultiLock(key, List.of("z"))));
        must(alice.acquires(name, LONG_MS), "free values were not granted");
        must(!bob.acquires(name, LONG_MS), "a held value was granted");
        must(carol.acquires(name, LONG_MS), "a free value was not granted beside held ones");
        must(alice.releases(name) == Party.Answer.DONE, "the first holder's release was refused");
        must(!bob.acquires(name, LONG_MS), "one holder's release freed the other's value");
        must(carol.releases(name) == Party.Answer.DONE, "the second holder's release was refused");
        must(bob.acquires(name, LONG_MS), "released values were not granted");
        must(bob.releases(name) == Party.Answer.DONE, "the next holder's release was refused");
    }

    /** One thread with any of the locks. */
    private record Holder(Function<String, RLock> locks) implements Party {
        @Override
        public boolean acquire(String name, long ttlMs, long waitMs) throws Exception {
            return locks.apply(name).tryLock(waitMs, ttlMs, TimeUnit.MILLISECONDS);
        }

        @Override
        public boolean acquireKept(String name) {
            return locks.apply(name).tryLock();
        }

        @Override
        public Answer release(String name) {
            try {
                locks.apply(name).unlock();
                return Answer.DONE;
            } catch (IllegalMonitorStateException notMine) {
                return Answer.REFUSED;
            }
        }

        @Override
        public Answer extend(String name, long ttlMs) {
            throw new NotThere("the watchdog extends; see there");
        }
    }
}

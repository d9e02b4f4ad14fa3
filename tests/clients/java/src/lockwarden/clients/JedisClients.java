package lockwarden.clients;

import static lockwarden.clients.Checks.LONG_MS;
import static lockwarden.clients.Checks.SHORT_MS;
import static lockwarden.clients.Checks.must;

import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Supplier;
import lockwarden.clients.Server.Lease;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPool;
import redis.clients.jedis.JedisPoolConfig;
import redis.clients.jedis.JedisSentinelPool;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.util.Pool;

/** What people write with Jedis themselves. */
final class JedisClients extends Client {
    /** Fewer connections than contenders: a lock is taken over one and released over any other. */
    private static final int POOL = 4;

    static final String RELEASE =
            "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
    static final String EXTEND =
            "if redis.call('get', KEYS[1]) == ARGV[1] then"
                    + " return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end";

    private enum Idiom {
        WATCH("jedis-watch", "Jedis, WATCH release"),
        POOLED_WATCH("jedis-pool-watch", "JedisPool, WATCH release"),
        POOLED_SCRIPT("jedis-pool-script", "JedisPool, script release"),
        SENTINEL_SCRIPT("jedis-sentinel", "JedisSentinelPool, script release"),
        PLAIN_DEL("jedis-del", "Jedis, SETNX and DEL");

        private final String slug;
        private final String name;

        Idiom(String slug, String name) {
            this.slug = slug;
            this.name = name;
        }
    }

    private final Idiom idiom;
    private Pool<Jedis> pool;

    private JedisClients(Idiom idiom) {
        this.idiom = idiom;
    }

    static List<Client> all() {
        return Arrays.stream(Idiom.values()).<Client>map(JedisClients::new).toList();
    }

    @Override
    String slug() {
        return idiom.slug;
    }

    @Override
    String name() {
        return idiom.name;
    }

    @Override
    String library() {
        return "jedis";
    }

    @Override
    Party party() {
        return switch (idiom) {
            case WATCH -> new Watching(new Own());
            case POOLED_WATCH -> new Watching(new Borrowed(pool()));
            case POOLED_SCRIPT, SENTINEL_SCRIPT -> new Scripting(new Borrowed(pool()));
            case PLAIN_DEL -> new Deleting(new Own());
        };
    }

    private synchronized Pool<Jedis> pool() {
        if (pool == null) {
            JedisPoolConfig config = new JedisPoolConfig();
            config.setMaxTotal(POOL);
            config.setMaxIdle(POOL);
            config.setLifo(false); // Round and round, so that every connection is used.
            pool =
                    idiom == Idiom.SENTINEL_SCRIPT
                            ? new JedisSentinelPool(Server.NAME, Set.copyOf(Server.SENTINELS), config)
                            : new JedisPool(config, Server.HOST, Server.PORT);
        }
        return pool;
    }

    @Override
    Map<String, Check> more(Checks checks) {
        Map<String, Check> more = new LinkedHashMap<>();
        if (idiom == Idiom.PLAIN_DEL) {
            more.put("expiry", name -> late(checks, name));
            more.put("thief", name -> stranger(checks, name));
            more.put("DEL in a finally", name -> loser(checks, name));
        }
        if (idiom == Idiom.WATCH) {
            more.put("overtaken between WATCH and EXEC", name -> overtaken(checks, name));
        }
        return more;
    }

    @Override
    public synchronized void close() {
        if (pool != null) {
            pool.close();
        }
    }

    private void late(Checks checks, String name) throws Exception {
        Seat late = checks.somebody();
        Seat successor = checks.somebody();
        must(late.acquires(name, SHORT_MS), "a free lock was not granted");
        must(successor.acquires(name, LONG_MS, Checks.PATIENCE_MS), "the lock did not end by its TTL");
        Lease lease = checks.lease(name);
        late.releases(name);
        checks.mustBeDamagedUnlessEnforced(name, lease);
    }

    private void stranger(Checks checks, String name) throws Exception {
        Seat alice = checks.somebody();
        Seat thief = checks.somebody();
        must(alice.acquires(name, LONG_MS), "a free lock was not granted");
        Lease lease = checks.lease(name);
        thief.releases(name);
        checks.mustBeDamagedUnlessEnforced(name, lease);
    }

    /** Whoever was refused the lock deletes it all the same, because the DEL stands in a finally block. */
    private void loser(Checks checks, String name) throws Exception {
        Seat alice = checks.somebody();
        Seat loser = checks.somebody();
        must(alice.acquires(name, LONG_MS), "a free lock was not granted");
        Lease lease = checks.lease(name);
        must(!loser.acquires(name, LONG_MS), "a held lock was granted");
        loser.releases(name);
        checks.mustBeDamagedUnlessEnforced(name, lease);
    }

    /** The lock ends and is taken by somebody else while the holder is about to release it. */
    private void overtaken(Checks checks, String name) throws Exception {
        Seat successor = checks.somebody();
        try (Jedis late = new Jedis(Server.HOST, Server.PORT)) {
            String token = UUID.randomUUID().toString();
            String granted = late.set(name, token, SetParams.setParams().nx().px(SHORT_MS));
            must(granted != null, "a free lock was not granted");
            late.watch(name);
            must(token.equals(late.get(name)), "the holder reads another value than its own");
            must(successor.acquires(name, LONG_MS, Checks.PATIENCE_MS), "the lock did not end by its TTL");
            Lease lease = checks.lease(name);
            Transaction transaction = late.multi();
            transaction.del(name);
            must(transaction.exec() == null, "EXEC went through though the watched lock changed hands");
            checks.mustStay(name, lease);
        }
        must(successor.releases(name) == Party.Answer.DONE, "the successor's release was refused");
    }

    /** Where a party has its connection from, for as long as one step takes. */
    private interface Source extends Supplier<Jedis>, AutoCloseable {
        void giveBack(Jedis jedis);

        @Override
        void close();
    }

    /** A party with a name and a connection of its own: without names, all of one process are one client. */
    private static final class Own implements Source {
        private static final AtomicInteger PARTIES = new AtomicInteger();
        private final Jedis jedis = new Jedis(Server.HOST, Server.PORT);

        Own() {
            jedis.clientSetname("party-" + PARTIES.incrementAndGet());
        }

        @Override
        public Jedis get() {
            return jedis;
        }

        @Override
        public void giveBack(Jedis jedis) {}

        @Override
        public void close() {
            jedis.close();
        }
    }

    private record Borrowed(Pool<Jedis> pool) implements Source {
        @Override
        public Jedis get() {
            return pool.getResource();
        }

        @Override
        public void giveBack(Jedis jedis) {
            jedis.close();
        }

        @Override
        public void close() {}
    }

    /** Asks again and again, and has a value of its own. */
    private abstract static class Polling implements Party {
        final String token = UUID.randomUUID().toString();
        private final Source source;

        Polling(Source source) {
            this.source = source;
        }

        interface Step<T> {
            T with(Jedis jedis);
        }

        <T> T step(Step<T> step) {
            Jedis jedis = source.get();
            try {
                return step.with(jedis);
            } finally {
                source.giveBack(jedis);
            }
        }

        abstract boolean ask(String name, long ttlMs);

        /** Two commands, as before Redis had one for it. */
        final boolean setThenExpire(String name, long ttlMs) {
            return step(
                    jedis -> {
                        if (jedis.setnx(name, token) == 0) {
                            return false;
                        }
                        must(jedis.pexpire(name, ttlMs) == 1, "the holder's TTL was refused");
                        return true;
                    });
        }

        @Override
        public boolean acquire(String name, long ttlMs, long waitMs) throws Exception {
            long deadline = System.nanoTime() + waitMs * 1_000_000;
            while (!ask(name, ttlMs)) {
                if (System.nanoTime() >= deadline) {
                    return false;
                }
                Thread.sleep(10);
            }
            return true;
        }

        @Override
        public void close() {
            source.close();
        }
    }

    private static final class Watching extends Polling {
        Watching(Source source) {
            super(source);
        }

        @Override
        boolean ask(String name, long ttlMs) {
            return setThenExpire(name, ttlMs);
        }

        @Override
        public Answer release(String name) {
            return ifMine(name, transaction -> transaction.del(name));
        }

        @Override
        public Answer extend(String name, long ttlMs) {
            return ifMine(name, transaction -> transaction.pexpire(name, ttlMs));
        }

        interface Change {
            void in(Transaction transaction);
        }

        private Answer ifMine(String name, Change change) {
            return step(
                    jedis -> {
                        jedis.watch(name);
                        if (!token.equals(jedis.get(name))) {
                            jedis.unwatch();
                            return Answer.REFUSED;
                        }
                        Transaction transaction = jedis.multi();
                        change.in(transaction);
                        List<Object> results = transaction.exec();
                        return results != null && results.equals(List.of(1L)) ? Answer.DONE : Answer.REFUSED;
                    });
        }
    }

    private static final class Scripting extends Polling {
        Scripting(Source source) {
            super(source);
        }

        @Override
        boolean ask(String name, long ttlMs) {
            return step(jedis -> jedis.set(name, token, SetParams.setParams().nx().px(ttlMs)) != null);
        }

        @Override
        public Answer release(String name) {
            return answer(step(jedis -> jedis.eval(RELEASE, List.of(name), List.of(token))));
        }

        @Override
        public Answer extend(String name, long ttlMs) {
            return answer(
                    step(jedis -> jedis.eval(EXTEND, List.of(name), List.of(token, Long.toString(ttlMs)))));
        }

        private static Answer answer(Object number) {
            return number.equals(1L) ? Answer.DONE : Answer.REFUSED;
        }
    }

    /** The oldest way: nobody asks whose lock it is. */
    private static final class Deleting extends Polling {
        Deleting(Source source) {
            super(source);
        }

        @Override
        boolean ask(String name, long ttlMs) {
            return setThenExpire(name, ttlMs);
        }

        @Override
        public Answer release(String name) {
            return step(jedis -> jedis.del(name)) == 1 ? Answer.DONE : Answer.REFUSED;
        }

        @Override
        public Answer extend(String name, long ttlMs) {
            return step(jedis -> jedis.pexpire(name, ttlMs)) == 1 ? Answer.DONE : Answer.REFUSED;
        }
    }
}

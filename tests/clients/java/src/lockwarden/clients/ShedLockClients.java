package lockwarden.clients;

import static lockwarden.clients.Checks.LONG_MS;
import static lockwarden.clients.Checks.SHORT_MS;
import static lockwarden.clients.Checks.must;

import java.time.Duration;
import java.time.Instant;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import lockwarden.clients.Server.Lease;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.redis.spring.RedisLockProvider;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;

/** ShedLock over Spring Data and Lettuce. As it comes, a lock is released by DEL, whoever holds it by then. */
final class ShedLockClients extends Client {
    private final boolean safeUpdate;

    private ShedLockClients(boolean safeUpdate) {
        this.safeUpdate = safeUpdate;
    }

    static List<Client> all() {
        return List.of(new ShedLockClients(false), new ShedLockClients(true));
    }

    @Override
    String slug() {
        return safeUpdate ? "shedlock-safe" : "shedlock";
    }

    @Override
    String name() {
        return safeUpdate ? "ShedLock, safeUpdate" : "ShedLock";
    }

    @Override
    String library() {
        return "shedlock";
    }

    private String keyPrefix() {
        return Server.PREFIX + slug();
    }

    @Override
    String key(String name) {
        return keyPrefix() + ":java:" + name;
    }

    @Override
    Party party() {
        return new Holder();
    }

    @Override
    Map<String, Check> more(Checks checks) {
        Map<String, Check> more = new LinkedHashMap<>();
        more.put(
                "thief",
                name -> {
                    throw new Party.NotThere("only the object that was granted can release");
                });
        if (!safeUpdate) {
            more.put("expiry", name -> late(checks, name));
        }
        return more;
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

    private final class Holder implements Party {
        private final LettuceConnectionFactory connections =
                new LettuceConnectionFactory(Server.HOST, Server.PORT);
        private final RedisLockProvider provider;
        private final Map<String, SimpleLock> granted = new HashMap<>();

        Holder() {
            connections.afterPropertiesSet();
            connections.start();
            provider =
                    new RedisLockProvider.Builder(connections)
                            .environment("java")
                            .keyPrefix(keyPrefix())
                            .safeUpdate(safeUpdate)
                            .build();
        }

        @Override
        public boolean acquire(String name, long ttlMs, long waitMs) throws Exception {
            long deadline = System.nanoTime() + waitMs * 1_000_000;
            Optional<SimpleLock> lock = provider.lock(wish(name, ttlMs));
            while (lock.isEmpty() && System.nanoTime() < deadline) {
                Thread.sleep(10);
                lock = provider.lock(wish(name, ttlMs));
            }
            lock.ifPresent(held -> granted.put(name, held));
            return lock.isPresent();
        }

        private LockConfiguration wish(String name, long ttlMs) {
            return new LockConfiguration(Instant.now(), name, Duration.ofMillis(ttlMs), Duration.ZERO);
        }

        @Override
        public Answer release(String name) {
            granted.remove(name).unlock();
            return Answer.SILENT;
        }

        @Override
        public Answer extend(String name, long ttlMs) {
            Optional<SimpleLock> longer =
                    granted.remove(name).extend(Duration.ofMillis(ttlMs), Duration.ZERO);
            longer.ifPresent(held -> granted.put(name, held));
            return longer.isPresent() ? Answer.DONE : Answer.REFUSED;
        }

        @Override
        public void close() {
            connections.destroy();
        }
    }
}

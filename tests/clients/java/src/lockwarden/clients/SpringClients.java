package lockwarden.clients;

import static lockwarden.clients.Checks.must;

import java.time.Duration;
import java.util.ArrayList;
import java.util.ConcurrentModificationException;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.integration.redis.util.RedisLockRegistry;
import org.springframework.integration.redis.util.RedisLockRegistry.RedisLockType;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;

/**
 * Spring Integration's RedisLockRegistry over Lettuce. All threads of a registry have one owner token, and
 * exclude each other in the JVM; so two registries stand for two JVMs, and contenders are threads of either.
 */
final class SpringClients extends Client {
    /** Long before this the scheduler renews: every third of it. */
    private static final long RENEWED_MS = 3_000;

    private final RedisLockType type;
    private final List<Jvm> jvms = new ArrayList<>();
    private final AtomicInteger parties = new AtomicInteger();

    private SpringClients(RedisLockType type) {
        this.type = type;
    }

    static List<Client> all() {
        return List.of(
                new SpringClients(RedisLockType.PUB_SUB_LOCK), new SpringClients(RedisLockType.SPIN_LOCK));
    }

    @Override
    String slug() {
        return type == RedisLockType.PUB_SUB_LOCK ? "spring-pub-sub" : "spring-spin";
    }

    @Override
    String name() {
        return "Spring RedisLockRegistry, " + (type == RedisLockType.PUB_SUB_LOCK ? "pub/sub" : "spin");
    }

    @Override
    String library() {
        return "spring-integration";
    }

    /** A registry puts its own name before the lock's. */
    private String registryKey() {
        return Server.PREFIX + slug();
    }

    @Override
    String key(String name) {
        return registryKey() + ":" + name;
    }

    @Override
    synchronized Party party() {
        if (jvms.isEmpty()) {
            jvms.add(new Jvm());
            jvms.add(new Jvm());
        }
        return new Holder(jvms.get(parties.getAndIncrement() % 2));
    }

    @Override
    Map<String, Check> more(Checks checks) {
        Map<String, Check> more = new LinkedHashMap<>();
        more.put("renewal by scheduler", checks::watchdog);
        more.put("waiting for the end", checks::waitForTheEnd);
        more.put("reentrance", checks::reentrance);
        more.put("release too often", checks::releaseTooOften);
        if (type == RedisLockType.PUB_SUB_LOCK) {
            more.put("wake-up", checks::wakeUp);
        }
        return more;
    }

    @Override
    public synchronized void close() {
        jvms.forEach(Jvm::close);
    }

    /** What one application has: a connection, a registry, and one whose locks a scheduler renews. */
    private final class Jvm {
        private final LettuceConnectionFactory connections =
                new LettuceConnectionFactory(Server.HOST, Server.PORT);
        private final ThreadPoolTaskScheduler scheduler = new ThreadPoolTaskScheduler();
        private final RedisLockRegistry registry;
        private final RedisLockRegistry renewed;

        Jvm() {
            connections.afterPropertiesSet();
            connections.start();
            scheduler.setDaemon(true);
            scheduler.initialize();
            registry = registry();
            renewed = registry();
            renewed.setRenewalTaskScheduler(scheduler);
        }

        private RedisLockRegistry registry() {
            RedisLockRegistry made = new RedisLockRegistry(connections, registryKey());
            made.setRedisLockType(type);
            return made;
        }

        void close() {
            registry.destroy();
            renewed.destroy();
            scheduler.shutdown();
            connections.destroy();
        }
    }

    private static final class Holder implements Party {
        private final Jvm jvm;
        private RedisLockRegistry registry;

        Holder(Jvm jvm) {
            this.jvm = jvm;
            this.registry = jvm.registry;
        }

        @Override
        public boolean acquire(String name, long ttlMs, long waitMs) throws Exception {
            return registry.obtain(name).tryLock(Duration.ofMillis(waitMs), Duration.ofMillis(ttlMs));
        }

        @Override
        public boolean acquireKept(String name) throws Exception {
            registry = jvm.renewed;
            return acquire(name, RENEWED_MS, 0);
        }

        @Override
        public Answer release(String name) {
            try {
                registry.obtain(name).unlock();
                return Answer.DONE;
            } catch (ConcurrentModificationException lateSaysRedis) {
                return Answer.REFUSED;
            } catch (IllegalStateException neverHeldSaysTheRegistry) {
                must(neverHeldSaysTheRegistry.getMessage().startsWith("You do not own lock"),
                        "%s", neverHeldSaysTheRegistry);
                return Answer.REFUSED;
            }
        }

        @Override
        public Answer extend(String name, long ttlMs) {
            try {
                registry.renewLock(name, Duration.ofMillis(ttlMs));
                return Answer.DONE;
            } catch (IllegalStateException refused) {
                must(refused.getMessage().startsWith("Could not renew mutex"), "%s", refused);
                return Answer.REFUSED;
            }
        }
    }
}

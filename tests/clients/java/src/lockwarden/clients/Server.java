package lockwarden.clients;

import java.util.List;
import java.util.TreeMap;
import redis.clients.jedis.Jedis;

/** The server as a bystander sees it, over a connection that takes no lock. */
final class Server implements AutoCloseable {
    static final String HOST = System.getenv().getOrDefault("LOCK_HOST", "127.0.0.1");
    static final int PORT = Integer.parseInt(System.getenv().getOrDefault("LOCK_PORT", "6379"));
    static final String PREFIX = System.getenv().getOrDefault("LOCK_PREFIX", "lock:");
    /** Two that call the server {@link #NAME}, as host and port. */
    static final List<String> SENTINELS =
            List.of(System.getenv().getOrDefault("LOCK_SENTINELS", "").split(","));
    /** A node of a cluster, as host and port; null where there is none, and then there are sentinels. */
    static final String CLUSTER = System.getenv("LOCK_CLUSTER");
    static final String NAME = "mymaster";
    /** Whether the proxy stands in between. Only idioms that do damage by themselves ask this. */
    static final boolean ENFORCED = "enforced".equals(System.getenv("LOCK_WORLD"));

    /** What a lock looks like: it must stay this when somebody else tries something. */
    record Lease(String value, long endsAt) {
        static final Lease NONE = new Lease(null, -2);
    }

    private final Jedis jedis = new Jedis(HOST, PORT);

    /** The value of a key of any type that locks have, and when it ends by the server's clock. */
    synchronized Lease lease(String key) {
        long endsAt = jedis.pexpireTime(key);
        return switch (jedis.type(key)) {
            case "none" -> Lease.NONE;
            case "string" -> new Lease(jedis.get(key), endsAt);
            case "hash" -> new Lease(new TreeMap<>(jedis.hgetAll(key)).toString(), endsAt);
            default -> throw new AssertionError(key + " is no kind of lock: " + jedis.type(key));
        };
    }

    synchronized long ttl(String key) {
        return jedis.pttl(key);
    }

    synchronized long listLength(String key) {
        return jedis.llen(key);
    }

    synchronized long add(String plainKey, long amount) {
        return jedis.incrBy(plainKey, amount);
    }

    boolean isFree(String key) {
        return lease(key).equals(Lease.NONE);
    }

    @Override
    public void close() {
        jedis.close();
    }
}

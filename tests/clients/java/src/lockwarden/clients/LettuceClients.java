package lockwarden.clients;

import io.lettuce.core.AbstractRedisClient;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisNoScriptException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.SetArgs;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.api.sync.RedisClusterCommands;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.masterreplica.MasterReplica;
import java.util.Arrays;
import java.util.List;
import java.util.UUID;

/** What people write with Lettuce: every thread of the application uses the one connection. */
final class LettuceClients extends Client {
    private enum Way {
        ADDRESS("lettuce-shared", "Lettuce, shared connection"),
        SENTINEL("lettuce-sentinel", "Lettuce, by Sentinel"),
        MASTER_REPLICA("lettuce-master-replica-sentinel", "Lettuce MasterReplica, by Sentinel"),
        CLUSTER("lettuce-cluster", "Lettuce RedisClusterClient");

        private final String slug;
        private final String name;

        Way(String slug, String name) {
            this.slug = slug;
            this.name = name;
        }
    }

    private final Way way;
    private AbstractRedisClient client;
    private RedisClusterCommands<String, String> shared;

    private LettuceClients(Way way) {
        this.way = way;
    }

    static List<Client> all() {
        return Arrays.stream(Way.values()).<Client>map(LettuceClients::new).toList();
    }

    @Override
    String slug() {
        return way.slug;
    }

    @Override
    String name() {
        return way.name;
    }

    @Override
    String library() {
        return "lettuce";
    }

    @Override
    synchronized Party party() {
        if (client == null && way == Way.CLUSTER) {
            RedisClusterClient cluster = RedisClusterClient.create("redis://" + Server.CLUSTER);
            client = cluster;
            shared = cluster.connect().sync();
        }
        if (client == null) {
            RedisClient one = RedisClient.create();
            client = one;
            shared =
                    switch (way) {
                        case ADDRESS -> one.connect(RedisURI.create(Server.HOST, Server.PORT)).sync();
                        case SENTINEL -> one.connect(sentinels()).sync();
                        case MASTER_REPLICA ->
                                MasterReplica.connect(one, StringCodec.UTF8, sentinels()).sync();
                        case CLUSTER -> throw new IllegalStateException();
                    };
        }
        return new Thread(shared);
    }

    private static RedisURI sentinels() {
        String hosts = String.join(",", Server.SENTINELS);
        return RedisURI.create("redis-sentinel://" + hosts + "#" + Server.NAME);
    }

    @Override
    public synchronized void close() {
        if (client != null) {
            client.shutdown();
        }
    }

    /** A thread with a token of its own. */
    private static final class Thread implements Party {
        private static final String RELEASE =
                "if redis.call('get', KEYS[1]) == ARGV[1] then\n"
                        + "    return redis.call('del', KEYS[1])\n"
                        + "end\n"
                        + "return 0\n";
        private static final String EXTEND =
                "if redis.call('get', KEYS[1]) == ARGV[1] then\n"
                        + "    return redis.call('pexpire', KEYS[1], ARGV[2])\n"
                        + "end\n"
                        + "return 0\n";

        private final RedisClusterCommands<String, String> redis;
        private final String token = UUID.randomUUID().toString();

        Thread(RedisClusterCommands<String, String> redis) {
            this.redis = redis;
        }

        @Override
        public boolean acquire(String name, long ttlMs, long waitMs) throws Exception {
            long deadline = System.nanoTime() + waitMs * 1_000_000;
            while (redis.set(name, token, SetArgs.Builder.nx().px(ttlMs)) == null) {
                if (System.nanoTime() >= deadline) {
                    return false;
                }
                java.lang.Thread.sleep(10);
            }
            return true;
        }

        @Override
        public Answer release(String name) {
            return run(RELEASE, name, token);
        }

        @Override
        public Answer extend(String name, long ttlMs) {
            return run(EXTEND, name, token, Long.toString(ttlMs));
        }

        /** By digest first, and by the text where the server does not know it. */
        private Answer run(String script, String name, String... arguments) {
            String[] keys = {name};
            Long number;
            try {
                number = redis.evalsha(redis.digest(script), ScriptOutputType.INTEGER, keys, arguments);
            } catch (RedisNoScriptException unknown) {
                number = redis.eval(script, ScriptOutputType.INTEGER, keys, arguments);
            }
            return number == 1 ? Answer.DONE : Answer.REFUSED;
        }
    }
}

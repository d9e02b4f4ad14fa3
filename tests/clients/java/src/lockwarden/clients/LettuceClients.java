package lockwarden.clients;

import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisNoScriptException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.SetArgs;
import io.lettuce.core.api.sync.RedisCommands;
import java.util.List;
import java.util.UUID;

/** What people write with Lettuce: every thread of the application uses the one connection. */
final class LettuceClients extends Client {
    private RedisClient client;
    private RedisCommands<String, String> shared;

    static List<Client> all() {
        return List.of(new LettuceClients());
    }

    @Override
    String slug() {
        return "lettuce-shared";
    }

    @Override
    String name() {
        return "Lettuce, shared connection";
    }

    @Override
    String library() {
        return "lettuce";
    }

    @Override
    synchronized Party party() {
        if (client == null) {
            client = RedisClient.create(RedisURI.create(Server.HOST, Server.PORT));
            shared = client.connect().sync();
        }
        return new Thread(shared);
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

        private final RedisCommands<String, String> redis;
        private final String token = UUID.randomUUID().toString();

        Thread(RedisCommands<String, String> redis) {
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

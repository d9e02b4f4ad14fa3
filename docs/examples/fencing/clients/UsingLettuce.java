// Lettuce: one connection is shared by all threads, so FENCE is about the last lease that any of them was granted. UsingLettuce.java HOST PORT
import io.lettuce.core.RedisClient;
import io.lettuce.core.SetArgs;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.IntegerOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import java.nio.charset.StandardCharsets;
import java.util.UUID;

public class UsingLettuce {
    private enum Proxy implements ProtocolKeyword {
        LOCKWARDEN;

        @Override
        public byte[] getBytes() {
            return name().getBytes(StandardCharsets.UTF_8);
        }
    }

    public static void main(String[] args) {
        String key = "lock:stock:lamp";
        RedisClient client = RedisClient.create("redis://" + args[0] + ":" + args[1]);
        try (var connection = client.connect()) {
            var redis = connection.sync();
            redis.set(key, UUID.randomUUID().toString(), SetArgs.Builder.nx().px(30_000));
            Long fence = redis.dispatch(Proxy.LOCKWARDEN, new IntegerOutput<>(StringCodec.UTF8), asked("FENCE", key));
            Long current = redis.dispatch(
                    Proxy.LOCKWARDEN, new IntegerOutput<>(StringCodec.UTF8), asked("CHECK", key).add(fence));
            System.out.println(fence + " " + current);
            redis.del(key);
        }
        client.shutdown();
    }

    private static CommandArgs<String, String> asked(String what, String key) {
        return new CommandArgs<>(StringCodec.UTF8).add(what).addKey(key);
    }
}

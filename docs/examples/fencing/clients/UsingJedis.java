// Jedis: one Jedis is one connection, also one out of a pool. UsingJedis.java HOST PORT
import java.nio.charset.StandardCharsets;
import java.util.UUID;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.commands.ProtocolCommand;
import redis.clients.jedis.params.SetParams;

public class UsingJedis {
    private static final ProtocolCommand LOCKWARDEN = () -> "LOCKWARDEN".getBytes(StandardCharsets.UTF_8);

    public static void main(String[] args) {
        String key = "lock:stock:lamp";
        try (var jedis = new Jedis(args[0], Integer.parseInt(args[1]))) {
            jedis.set(key, UUID.randomUUID().toString(), SetParams.setParams().nx().px(30_000));
            long fence = (Long) jedis.sendCommand(LOCKWARDEN, "FENCE", key);
            System.out.println(fence + " " + jedis.sendCommand(LOCKWARDEN, "CHECK", key, Long.toString(fence)));
            jedis.del(key);
        }
    }
}

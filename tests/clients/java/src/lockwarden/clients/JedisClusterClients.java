package lockwarden.clients;

import java.util.List;
import java.util.UUID;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisCluster;
import redis.clients.jedis.params.SetParams;

/** What people write with JedisCluster, which asks who has which slots: SET NX PX, and scripts. */
final class JedisClusterClients extends Client {
    private JedisCluster cluster;

    static List<Client> all() {
        return List.of(new JedisClusterClients());
    }

    @Override
    String slug() {
        return "jedis-cluster";
    }

    @Override
    String name() {
        return "JedisCluster, script release";
    }

    @Override
    String library() {
        return "jedis";
    }

    @Override
    synchronized Party party() {
        if (cluster == null) {
            cluster = new JedisCluster(HostAndPort.from(Server.CLUSTER));
        }
        return new Scripting(cluster, UUID.randomUUID().toString());
    }

    @Override
    public synchronized void close() {
        if (cluster != null) {
            cluster.close();
        }
    }

    private record Scripting(JedisCluster cluster, String token) implements Party {
        @Override
        public boolean acquire(String name, long ttlMs, long waitMs) throws Exception {
            long deadline = System.nanoTime() + waitMs * 1_000_000;
            while (cluster.set(name, token, SetParams.setParams().nx().px(ttlMs)) == null) {
                if (System.nanoTime() >= deadline) {
                    return false;
                }
                Thread.sleep(10);
            }
            return true;
        }

        @Override
        public Answer release(String name) {
            return answer(cluster.eval(JedisClients.RELEASE, List.of(name), List.of(token)));
        }

        @Override
        public Answer extend(String name, long ttlMs) {
            return answer(cluster.eval(JedisClients.EXTEND, List.of(name), List.of(token, Long.toString(ttlMs))));
        }

        private static Answer answer(Object number) {
            return Long.valueOf(1).equals(number) ? Answer.DONE : Answer.REFUSED;
        }
    }
}

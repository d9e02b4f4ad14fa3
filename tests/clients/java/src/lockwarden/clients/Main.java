package lockwarden.clients;

import com.google.gson.JsonObject;
import java.io.InputStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** Runs every client, or those that are named, and prints one JSON line a check. */
final class Main {
    /** Most of the time goes by in waiting for TTLs. */
    private static final int CLIENTS_AT_ONCE = 4;

    /** Redisson tells the whole script with an error. */
    private static final int LONGEST_DETAIL = 400;

    private static final Properties VERSIONS = new Properties();

    private Main() {}

    public static void main(String[] wanted) throws Exception {
        try (InputStream file = Main.class.getResourceAsStream("/versions.properties")) {
            VERSIONS.load(file);
        }
        List<Client> clients = new ArrayList<>();
        clients.addAll(RedissonClients.all());
        clients.addAll(JedisClients.all());
        clients.addAll(LettuceClients.all());
        clients.addAll(JedisClusterClients.all());
        clients.addAll(SpringClients.all());
        clients.addAll(ShedLockClients.all());
        if (wanted.length > 0) {
            clients.removeIf(client -> !Arrays.asList(wanted).contains(client.slug()));
        }
        // There are sentinels, or there is a cluster.
        String absent = Server.CLUSTER == null ? "-cluster" : "-sentinel";
        clients.removeIf(client -> client.slug().endsWith(absent));

        ExecutorService threads = Executors.newFixedThreadPool(CLIENTS_AT_ONCE);
        List<Future<List<String>>> reports = new ArrayList<>();
        for (Client client : clients) {
            reports.add(threads.submit(() -> run(client)));
        }
        for (Future<List<String>> report : reports) {
            report.get().forEach(System.out::println);
        }
        System.out.flush();
        // Not by the end of main: the libraries keep threads of their own.
        System.exit(0);
    }

    private static List<String> run(Client client) throws Exception {
        List<String> lines = new ArrayList<>();
        try (client;
                Server server = new Server()) {
            Checks checks = new Checks(client, server);
            int number = 0;
            for (Map.Entry<String, Client.Check> check : checks.all().entrySet()) {
                if (!isWanted(check.getKey())) {
                    continue;
                }
                String name = Server.PREFIX + client.slug() + ":" + number++;
                lines.add(line(client, check.getKey(), outcome(check.getValue(), name)));
                checks.dismiss();
            }
        }
        return lines;
    }

    /** By default all are. */
    private static boolean isWanted(String check) {
        String wanted = System.getenv("LOCK_CHECKS");
        return wanted == null || Arrays.asList(wanted.split(";")).contains(check);
    }

    private record Outcome(String result, String detail) {}

    private static Outcome outcome(Client.Check check, String name) {
        try {
            check.run(name);
            return new Outcome("ok", null);
        } catch (Party.NotThere none) {
            return new Outcome("n/a", none.getMessage());
        } catch (AssertionError wrong) {
            return new Outcome("failed", wrong.getMessage());
        } catch (Exception unexpected) {
            return new Outcome("failed", story(unexpected));
        }
    }

    /** What was thrown and what lies at the bottom of it, which is where the server's answer is. */
    private static String story(Throwable thrown) {
        Throwable cause = thrown;
        while (cause.getCause() != null) {
            cause = cause.getCause();
        }
        String story = cause == thrown ? thrown.toString() : thrown + "; because of " + cause;
        return story.length() > LONGEST_DETAIL ? story.substring(0, LONGEST_DETAIL) + "…" : story;
    }

    private static String line(Client client, String check, Outcome outcome) {
        JsonObject line = new JsonObject();
        line.addProperty("client", client.name());
        line.addProperty("version", VERSIONS.getProperty(client.library()));
        line.addProperty("check", check);
        line.addProperty("result", outcome.result());
        if (outcome.detail() != null) {
            line.addProperty("detail", outcome.detail());
        }
        return line.toString();
    }
}

package lockwarden.quartz;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.BooleanSupplier;
import net.joelinn.quartz.jobstore.RedisJobStore;
import net.joelinn.quartz.jobstore.RedisJobStoreSchema;
import net.joelinn.quartz.jobstore.RedisStorage;
import org.quartz.Job;
import org.quartz.JobBuilder;
import org.quartz.JobExecutionContext;
import org.quartz.Scheduler;
import org.quartz.TriggerBuilder;
import org.quartz.impl.StdSchedulerFactory;
import redis.clients.jedis.Jedis;

/**
 * Quartz with its job store in Redis: each look at the store is under one lock, which every scheduler takes. Prints one JSON line a
 * check, as the lock libraries do.
 */
public final class Main {
    private static final String HOST = System.getenv("LOCK_HOST");
    private static final int PORT = Integer.parseInt(System.getenv("LOCK_PORT"));
    /** Whether misuse does its damage here. */
    private static final boolean DAMAGED = "direct".equals(System.getenv("LOCK_WORLD"));

    private static final String PREFIX = "quartz:";
    private static final String LOCK = PREFIX + "lock";
    private static final int JOBS = 20;
    private static final int SHORT_MS = 400;
    private static final int LONG_MS = 20_000;
    private static final long PATIENCE_MS = 60_000;
    private static final String VERSION =
            RedisJobStore.class.getProtectionDomain().getCodeSource().getLocation().getPath().replaceAll(".*-|\\.jar$", "");

    private static final Map<String, Integer> DONE = new ConcurrentHashMap<>();

    private interface Check {
        void run(Jedis bystander) throws Exception;
    }

    /** Its name is what was done. */
    public static final class Noted implements Job {
        @Override
        public void execute(JobExecutionContext context) {
            DONE.merge(context.getJobDetail().getKey().getName(), 1, Integer::sum);
        }
    }

    private Main() {}

    public static void main(String[] none) throws Exception {
        Map<String, Check> checks = new LinkedHashMap<>();
        checks.put("jobs", Main::jobs);
        checks.put("expiry", Main::expiry);
        checks.put("stranger", Main::stranger);
        String wanted = System.getenv("LOCK_CHECKS");
        if (wanted != null) {
            checks.keySet().retainAll(Arrays.asList(wanted.split(";")));
        }
        for (Map.Entry<String, Check> check : checks.entrySet()) {
            Map<String, String> line = new LinkedHashMap<>();
            line.put("client", "Quartz, quartz-redis-jobstore");
            line.put("version", VERSION);
            line.put("check", check.getKey());
            line.put("result", "ok");
            try (Jedis bystander = new Jedis(HOST, PORT)) {
                bystander.clientSetname("bystander");
                check.getValue().run(bystander);
            } catch (Exception | AssertionError problem) {
                line.put("result", "failed");
                line.put("detail", problem.toString());
            }
            System.out.println(new ObjectMapper().writeValueAsString(line));
        }
        System.out.flush();
        // Not by the end of main: the schedulers' threads may go on.
        System.exit(0);
    }

    /** Two schedulers on one store do each job once. */
    private static void jobs(Jedis bystander) throws Exception {
        List<Scheduler> schedulers = List.of(scheduler("one"), scheduler("two"));
        try {
            for (Scheduler scheduler : schedulers) {
                scheduler.start();
            }
            for (int number = 0; number < JOBS; number++) {
                schedulers
                        .get(number % schedulers.size())
                        .scheduleJob(
                                JobBuilder.newJob(Noted.class).withIdentity("job" + number).build(),
                                TriggerBuilder.newTrigger().withIdentity("trigger" + number).startNow().build());
            }
            wait("all jobs are done", () -> DONE.size() == JOBS);
        } finally {
            for (Scheduler scheduler : schedulers) {
                scheduler.shutdown(true);
            }
        }
        must(DONE.values().stream().allMatch(times -> times == 1), "some were done more than once: " + DONE);
        must(!bystander.exists(LOCK), "the lock was left");
    }

    private static Scheduler scheduler(String name) throws Exception {
        Properties properties = new Properties();
        properties.setProperty("org.quartz.scheduler.instanceName", name);
        properties.setProperty("org.quartz.scheduler.instanceId", name);
        properties.setProperty("org.quartz.scheduler.idleWaitTime", "1000");
        properties.setProperty("org.quartz.scheduler.skipUpdateCheck", "true");
        properties.setProperty("org.quartz.threadPool.class", "org.quartz.simpl.SimpleThreadPool");
        properties.setProperty("org.quartz.threadPool.threadCount", "3");
        properties.setProperty("org.quartz.jobStore.class", RedisJobStore.class.getName());
        properties.setProperty("org.quartz.jobStore.host", HOST);
        properties.setProperty("org.quartz.jobStore.port", String.valueOf(PORT));
        properties.setProperty("org.quartz.jobStore.keyPrefix", PREFIX);
        return new StdSchedulerFactory(properties).getScheduler();
    }

    /** What a scheduler that is late does to its successor's lock. */
    private static void expiry(Jedis bystander) throws Exception {
        try (Jedis first = new Jedis(HOST, PORT);
                Jedis second = new Jedis(HOST, PORT)) {
            RedisStorage late = storage("late", SHORT_MS);
            RedisStorage successor = storage("successor", LONG_MS);
            must(late.lock(first), "a free lock was not granted");
            wait("the lock ends by its TTL", () -> !bystander.exists(LOCK));
            must(successor.lock(second), "a lock that ended was not granted");
            String value = bystander.get(LOCK);
            must(!late.unlock(first), "a late release went through");
            must(value.equals(bystander.get(LOCK)), "the successor's lock is gone");
            must(successor.unlock(second), "the successor's release was refused");
            must(!bystander.exists(LOCK), "a released lock is still there");
        }
    }

    /** What a bystander's DEL does to the lock while a scheduler has it. */
    private static void stranger(Jedis bystander) throws Exception {
        try (Jedis first = new Jedis(HOST, PORT);
                Jedis second = new Jedis(HOST, PORT)) {
            RedisStorage holder = storage("holder", LONG_MS);
            RedisStorage other = storage("other", LONG_MS);
            must(holder.lock(first), "a free lock was not granted");
            must(!other.lock(second), "a held lock was granted");
            must(bystander.del(LOCK) == (DAMAGED ? 1 : 0), "the bystander's DEL had another answer");
            must(other.lock(second) == DAMAGED, "whether another one gets it is not what it must be");
            must((DAMAGED ? other.unlock(second) : holder.unlock(first)), "the holder's release was refused");
            must(!bystander.exists(LOCK), "a released lock is still there");
        }
    }

    /** How the job store takes its lock, without a scheduler. */
    private static RedisStorage storage(String instance, int lockMs) {
        return new RedisStorage(new RedisJobStoreSchema(PREFIX), new ObjectMapper(), null, instance, lockMs);
    }

    private static void must(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }

    private static void wait(String what, BooleanSupplier comesTrue) throws InterruptedException {
        long deadline = System.nanoTime() + PATIENCE_MS * 1_000_000;
        while (!comesTrue.getAsBoolean()) {
            must(System.nanoTime() < deadline, "waited in vain: " + what);
            Thread.sleep(20);
        }
    }
}

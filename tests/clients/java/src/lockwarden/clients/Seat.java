package lockwarden.clients;

import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** A party on a thread of its own. Everything it does comes to an end or fails the check. */
final class Seat implements AutoCloseable {
    private static final long PATIENCE_S = 60;

    final Party party;
    private final ExecutorService thread =
            Executors.newSingleThreadExecutor(
                    task -> {
                        Thread thread = new Thread(task, "party");
                        thread.setDaemon(true);
                        return thread;
                    });

    Seat(Party party) {
        this.party = party;
    }

    <T> Future<T> start(Callable<T> deed) {
        return thread.submit(deed);
    }

    <T> T does(Callable<T> deed) throws Exception {
        return result(start(deed));
    }

    static <T> T result(Future<T> started) throws Exception {
        try {
            return started.get(PATIENCE_S, TimeUnit.SECONDS);
        } catch (ExecutionException failed) {
            if (failed.getCause() instanceof Exception cause) {
                throw cause;
            }
            throw (Error) failed.getCause();
        } catch (TimeoutException slow) {
            throw new AssertionError("a call did not come back within " + PATIENCE_S + " s");
        }
    }

    boolean acquires(String name, long ttlMs) throws Exception {
        return does(() -> party.acquire(name, ttlMs, 0));
    }

    boolean acquires(String name, long ttlMs, long waitMs) throws Exception {
        return does(() -> party.acquire(name, ttlMs, waitMs));
    }

    Party.Answer releases(String name) throws Exception {
        return does(() -> party.release(name));
    }

    Party.Answer prolongs(String name, long ttlMs) throws Exception {
        return does(() -> party.extend(name, ttlMs));
    }

    @Override
    public void close() throws Exception {
        start(
                () -> {
                    party.close();
                    return null;
                });
        thread.shutdown();
        if (!thread.awaitTermination(5, TimeUnit.SECONDS)) {
            thread.shutdownNow();
        }
    }
}

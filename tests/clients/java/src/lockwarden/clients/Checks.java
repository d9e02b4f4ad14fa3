package lockwarden.clients;

import static lockwarden.clients.Party.Answer.DONE;
import static lockwarden.clients.Party.Answer.REFUSED;
import static lockwarden.clients.Party.Answer.SILENT;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import java.util.function.BooleanSupplier;
import lockwarden.clients.Server.Lease;

/** What every lock must do, and the words in which a client's own checks say what they expect. */
final class Checks {
    static final long SHORT_MS = 400;
    static final long LONG_MS = 20_000;
    static final long PATIENCE_MS = 15_000;
    private static final int PARTIES = 8;
    private static final int ROUNDS = 4;

    final Server server;
    private final Client client;
    private final List<Seat> seats = new ArrayList<>();

    Checks(Client client, Server server) {
        this.client = client;
        this.server = server;
    }

    Map<String, Client.Check> all() {
        Map<String, Client.Check> all = new LinkedHashMap<>();
        all.put("acquire", this::acquire);
        all.put("contend", this::contend);
        all.put("extend", this::extend);
        all.put("release", this::release);
        all.put("expiry", this::expiry);
        all.put("thief", this::thief);
        all.putAll(client.more(this));
        return all;
    }

    /** Whoever a check brought in leaves with it. */
    void dismiss() throws Exception {
        for (Seat seat : seats) {
            seat.close();
        }
        seats.clear();
    }

    Seat somebody() throws Exception {
        return seat(client.party());
    }

    Seat seat(Party party) {
        Seat seat = new Seat(party);
        seats.add(seat);
        return seat;
    }

    private void acquire(String name) throws Exception {
        Seat alice = somebody();
        Seat bob = somebody();
        must(alice.acquires(name, 5_000), "a free lock was not granted");
        must(!bob.acquires(name, 5_000), "a held lock was granted");
        long ttl = ttl(name);
        must(ttl > 0 && ttl <= 5_000, "the lock has a TTL of %d ms", ttl);
        alice.releases(name);
    }

    private void contend(String name) throws Exception {
        String inside = "plain:" + name + ":inside";
        List<Future<Integer>> rounds = new ArrayList<>();
        for (int number = 0; number < PARTIES; number++) {
            Seat seat = seat(client.contender(number));
            rounds.add(seat.start(() -> takeTurns(seat.party, name, inside)));
        }
        int overlaps = 0;
        List<String> failures = new ArrayList<>();
        for (Future<Integer> round : rounds) {
            try {
                overlaps += Seat.result(round);
            } catch (Exception | AssertionError failed) {
                failures.add(failed.getMessage());
            }
        }
        must(failures.isEmpty(), "of %d parties some gave up: %s", PARTIES, failures);
        must(overlaps == 0, "two were inside together %d times", overlaps);
        must(isFree(name), "the last one left the lock behind");
    }

    private int takeTurns(Party party, String name, String inside) throws Exception {
        int overlaps = 0;
        for (int round = 0; round < ROUNDS; round++) {
            must(party.acquire(name, LONG_MS, PATIENCE_MS), "waited %d ms in vain", PATIENCE_MS);
            if (server.add(inside, 1) != 1) {
                overlaps++;
            }
            Thread.sleep(1);
            server.add(inside, -1);
            must(party.release(name) != REFUSED, "the holder's release was refused");
        }
        return overlaps;
    }

    private void extend(String name) throws Exception {
        Seat alice = somebody();
        Seat bob = somebody();
        must(alice.acquires(name, 10_000), "a free lock was not granted");
        try {
            must(alice.prolongs(name, LONG_MS) == DONE, "the holder's extension was refused");
        } catch (Party.NotThere none) {
            alice.releases(name);
            throw none;
        }
        long ttl = ttl(name);
        must(ttl > 10_000 && ttl <= LONG_MS, "after the extension the lock has a TTL of %d ms", ttl);
        must(!bob.acquires(name, 5_000), "an extended lock was granted");
        alice.releases(name);
    }

    /** The library renews by itself: the lock lives on beyond its first TTL, and is free when released. */
    void watchdog(String name) throws Exception {
        Seat alice = somebody();
        Seat bob = somebody();
        must(alice.does(() -> alice.party.acquireKept(name)), "a free lock was not granted");
        Lease first = lease(name);
        wait("the lock is renewed beyond its first end", () -> lease(name).endsAt() > first.endsAt());
        Lease second = lease(name);
        wait("it is renewed again", () -> lease(name).endsAt() > second.endsAt());
        must(
                client.owners(lease(name).value()).equals(client.owners(first.value())),
                "a renewal changed the owners: %s, then %s",
                first,
                lease(name));
        must(!bob.acquires(name, 5_000), "a renewed lock was granted");
        must(alice.releases(name) == DONE, "the holder's release was refused");
        must(isFree(name), "a released lock is still there");
    }

    private void release(String name) throws Exception {
        Seat alice = somebody();
        Seat bob = somebody();
        must(alice.acquires(name, LONG_MS), "a free lock was not granted");
        must(alice.releases(name) != REFUSED, "the holder's release was refused");
        must(isFree(name), "a released lock is still there");
        must(bob.acquires(name, LONG_MS), "a released lock was not granted");
        must(bob.releases(name) != REFUSED, "the next holder's release was refused");
    }

    private void expiry(String name) throws Exception {
        Seat late = somebody();
        Seat successor = somebody();
        must(late.acquires(name, SHORT_MS), "a free lock was not granted");
        wait("the lock ends by its TTL", () -> isFree(name));
        must(successor.acquires(name, LONG_MS), "a lock that ended was not granted");
        Lease lease = lease(name);
        Party.Answer answer = late.releases(name);
        must(answer == REFUSED || answer == SILENT, "a late release went through");
        mustStay(name, lease);
        must(successor.releases(name) != REFUSED, "the successor's release was refused");
        must(isFree(name), "a released lock is still there");
    }

    private void thief(String name) throws Exception {
        Seat alice = somebody();
        Seat thief = somebody();
        must(alice.acquires(name, LONG_MS), "a free lock was not granted");
        Lease lease = lease(name);
        must(thief.releases(name) == REFUSED, "a stranger's release went through");
        mustStay(name, lease);
        try {
            must(thief.prolongs(name, 50_000) == REFUSED, "a stranger's extension went through");
        } catch (Party.NotThere none) {
            // What cannot be extended cannot be extended by a stranger.
        }
        mustStay(name, lease);
        must(alice.releases(name) != REFUSED, "the holder's release was refused");
    }

    /** Who waits as the library waits is granted the lock when its TTL runs out. */
    void waitForTheEnd(String name) throws Exception {
        Seat late = somebody();
        Seat successor = somebody();
        must(late.acquires(name, SHORT_MS), "a free lock was not granted");
        must(successor.acquires(name, LONG_MS, PATIENCE_MS), "nobody told the waiter that the lock had ended");
        Lease lease = lease(name);
        must(late.releases(name) == REFUSED, "a late release went through");
        mustStay(name, lease);
        must(successor.releases(name) == DONE, "the successor's release was refused");
    }

    /** Waiters hear of a release: this one waits far less than the TTL. */
    void wakeUp(String name) throws Exception {
        Seat alice = somebody();
        Seat bob = somebody();
        must(alice.acquires(name, 50_000), "a free lock was not granted");
        Future<Boolean> waiting = bob.start(() -> bob.party.acquire(name, LONG_MS, PATIENCE_MS));
        Thread.sleep(200);
        must(!waiting.isDone(), "a held lock was granted");
        must(alice.releases(name) == DONE, "the holder's release was refused");
        must(Seat.result(waiting), "the waiter was not woken by the release");
        must(bob.releases(name) == DONE, "the waiter's release was refused");
    }

    /** The holder takes the lock twice and has to release it twice. */
    void reentrance(String name) throws Exception {
        Seat alice = somebody();
        Seat bob = somebody();
        must(alice.acquires(name, LONG_MS), "a free lock was not granted");
        must(alice.acquires(name, LONG_MS), "the holder was not granted its own lock again");
        must(alice.releases(name) == DONE, "the first release was refused");
        must(!bob.acquires(name, LONG_MS), "a lock that is still held once was granted");
        must(alice.releases(name) == DONE, "the second release was refused");
        must(isFree(name), "a released lock is still there");
    }

    /** A second release of a lock that was taken once, free now or held by the next one. */
    void releaseTooOften(String name) throws Exception {
        Seat alice = somebody();
        Seat bob = somebody();
        must(alice.acquires(name, LONG_MS), "a free lock was not granted");
        must(alice.releases(name) == DONE, "the holder's release was refused");
        must(alice.releases(name) == REFUSED, "the release of a free lock went through");
        must(bob.acquires(name, LONG_MS), "a released lock was not granted");
        Lease lease = lease(name);
        must(alice.releases(name) == REFUSED, "the former holder's release went through");
        mustStay(name, lease);
        must(bob.releases(name) == DONE, "the next holder's release was refused");
    }

    Lease lease(String name) {
        return server.lease(client.key(name));
    }

    long ttl(String name) {
        return server.ttl(client.key(name));
    }

    /** Of several keys all are free. */
    boolean isFree(String name) {
        return client.keys(name).stream().allMatch(server::isFree);
    }

    void mustStay(String name, Lease lease) {
        Lease now = lease(name);
        must(now.equals(lease), "the lock was %s and is %s", lease, now);
    }

    /** An idiom that frees other people's locks: it does where nobody protects them. */
    void mustBeDamagedUnlessEnforced(String name, Lease lease) {
        Lease due = Server.ENFORCED ? lease : Lease.NONE;
        Lease now = lease(name);
        must(now.equals(due), "the lock was %s, must be %s and is %s", lease, due, now);
    }

    static void must(boolean holds, String otherwise, Object... details) {
        if (!holds) {
            throw new AssertionError(String.format(otherwise, details));
        }
    }

    static void wait(String what, BooleanSupplier comesTrue) throws InterruptedException {
        long deadline = System.nanoTime() + PATIENCE_MS * 1_000_000;
        while (!comesTrue.getAsBoolean()) {
            must(System.nanoTime() < deadline, "waited in vain: %s", what);
            Thread.sleep(10);
        }
    }
}

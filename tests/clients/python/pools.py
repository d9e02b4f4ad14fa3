"""SETNX and DEL with one value for all, by threads that share connections: on the wire, a release looks the same
whoever sends it. `LOCK_VOID` names the setting of `void_after_refusal` that the proxy runs with beside `doubt = "refuse"`,
or "default" (nothing in front: no variable). Each check asserts what that setting promises, and tells how it went."""

import json
import os
import threading
import time

import redis

THREADS = 6
CONNECTIONS = 3
ROUNDS = 3
TTL_MS = 300
WORK_S = 0.002
WITHIN_S = 20
# Shorter than what everybody needs who waits for TTLs.
WAITING_WITHIN_S = 5

HOST, PORT = os.environ["LOCK_HOST"], int(os.environ["LOCK_PORT"])
VOID = os.environ.get("LOCK_VOID")  # None, "default", "", "identity" or "session,identity"


def pool(**more):
    connections = redis.BlockingConnectionPool(
        host=HOST, port=PORT, max_connections=CONNECTIONS, timeout=WITHIN_S, **more
    )
    return redis.Redis(connection_pool=connections)


def named_pool():
    return pool(client_name="worker")


def shared_connection():
    return redis.Redis(host=HOST, port=PORT, single_connection_client=True)


class Contest:
    """Threads that take one lock in turns. A lease counts until its TTL at the latest, so that a thread which the
    machine held up is no violation."""

    def __init__(self, client, key, in_finally, ttl_ms):
        self.client, self.key, self.in_finally, self.ttl_ms = client, key, in_finally, ttl_ms
        self.leases, self.freed, self.problems = [], [], []

    def run(self, within_s):
        deadline = time.monotonic() + within_s
        threads = [threading.Thread(target=self.one, args=(deadline,)) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.problems:
            raise self.problems[0]

    def one(self, deadline):
        try:
            grants = 0
            while grants < ROUNDS and time.monotonic() < deadline:
                grants += self.attempt()
                time.sleep(0.001)
        except Exception as problem:
            self.problems.append(problem)

    def attempt(self):
        sent = time.monotonic()
        granted = self.client.set(self.key, "1", nx=True, px=self.ttl_ms)
        begin = time.monotonic()
        if granted:
            time.sleep(WORK_S)
            self.leases.append((begin, min(time.monotonic(), sent + TTL_MS / 1000)))
        if granted or self.in_finally:
            deleted = self.client.delete(self.key)
            if granted and time.monotonic() < sent + TTL_MS / 1000:
                self.freed.append(deleted)
        return bool(granted)

    def everybody_came_in(self):
        return len(self.leases) == THREADS * ROUNDS

    def overlaps(self):
        leases = sorted(lease for lease in self.leases if lease[0] < lease[1])
        return sum(after[0] < before[1] for before, after in zip(leases, leases[1:]))

    def told(self):
        """Grants, of these released by DEL, overlaps."""
        rest = "" if self.everybody_came_in() else ", waiting"
        return f"{len(self.leases)}/{sum(self.freed)}/{self.overlaps()}{rest}"


ALL = {None, "default", "", "identity", "session,identity"}


def check(name, client, releases, in_finally=False, ttl_ms=TTL_MS):
    """`releases` are the settings under which each holder's DEL deletes. Where it need not, the lock goes by its TTL,
    if it has one of its own."""
    comes_in = ALL if ttl_ms else releases
    excludes = set() if in_finally else ALL
    line = {"client": "SET NX, DEL (redis-py)", "version": redis.__version__, "check": name, "result": "ok"}
    try:
        key = f"{os.environ['LOCK_PREFIX']}pools:{name.replace(' ', '-')}"
        connections = client()
        contest = Contest(connections, key, in_finally, ttl_ms)
        contest.run(WITHIN_S if VOID in comes_in else WAITING_WITHIN_S)
        connections.connection_pool.disconnect()
        line["detail"] = contest.told()
        assert VOID not in comes_in or contest.everybody_came_in(), contest.told()
        assert VOID not in excludes or contest.overlaps() == 0, contest.told()
        assert VOID not in releases or all(contest.freed), contest.told()
        # Otherwise the numbers with the proxy would mean nothing.
        assert VOID is not None or not in_finally or contest.overlaps() > 0, contest.told()
    except Exception as problem:
        line |= {"result": "failed", "detail": f"{type(problem).__name__}: {problem}"[:400]}
    print(json.dumps(line), flush=True)


def main():
    of_a_pool, of_a_connection = {None, "default", ""}, {None, "default", "", "identity"}
    check("named pool", named_pool, of_a_pool)
    check("pool without a name", pool, of_a_pool)
    check("shared connection", shared_connection, of_a_connection)
    check("named pool, no TTL", named_pool, of_a_pool, ttl_ms=None)
    check("shared connection, no TTL", shared_connection, of_a_connection, ttl_ms=None)
    # No setting excludes here: a DEL may come right after another thread's grant, on that grant's connection.
    check("named pool, DEL in a finally", named_pool, set(), in_finally=True)
    check("shared connection, DEL in a finally", shared_connection, set(), in_finally=True)


main()

"""SETNX and DEL with one value for all, by threads that share connections: on the wire, a release looks the same
whoever sends it. `LOCK_VOID` names the setting of `void_after_refusal` that the proxy runs with (nothing in front:
no variable). Each check asserts what that setting promises, and tells how it went."""

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
WITHIN_S = 60

HOST, PORT = os.environ["LOCK_HOST"], int(os.environ["LOCK_PORT"])
VOID = os.environ.get("LOCK_VOID")  # None, "", "identity" or "session,identity"


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

    def __init__(self, client, key, in_finally):
        self.client, self.key, self.in_finally = client, key, in_finally
        self.leases, self.freed, self.problems = [], [], []

    def run(self):
        deadline = time.monotonic() + WITHIN_S
        threads = [threading.Thread(target=self.one, args=(deadline,)) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.problems:
            raise self.problems[0]
        return self

    def one(self, deadline):
        try:
            grants = 0
            while grants < ROUNDS:
                assert time.monotonic() < deadline, "not let in in time"
                grants += self.attempt()
                time.sleep(0.001)
        except Exception as problem:
            self.problems.append(problem)

    def attempt(self):
        sent = time.monotonic()
        granted = self.client.set(self.key, "1", nx=True, px=TTL_MS)
        begin = time.monotonic()
        if granted:
            time.sleep(WORK_S)
            self.leases.append((begin, min(time.monotonic(), sent + TTL_MS / 1000)))
        if granted or self.in_finally:
            deleted = self.client.delete(self.key)
            if granted and time.monotonic() < sent + TTL_MS / 1000:
                self.freed.append(deleted)
        return bool(granted)

    def overlaps(self):
        leases = sorted(lease for lease in self.leases if lease[0] < lease[1])
        return sum(after[0] < before[1] for before, after in zip(leases, leases[1:]))

    def told(self):
        return f"{len(self.leases)} grants, {sum(self.freed)} released by DEL, {self.overlaps()} overlaps"


def check(name, client, in_finally, excludes, releases):
    """`excludes` and `releases` name the settings under which two never hold it at a time, and under which each
    holder's DEL deletes."""
    line = {"client": "SET NX, DEL (redis-py)", "version": redis.__version__, "check": name, "result": "ok"}
    try:
        contest = Contest(client(), f"{os.environ['LOCK_PREFIX']}pools:{name.replace(' ', '-')}", in_finally).run()
        line["detail"] = contest.told()
        assert VOID not in excludes or contest.overlaps() == 0, contest.told()
        assert VOID not in releases or all(contest.freed), contest.told()
        # Otherwise the numbers with the proxy would mean nothing.
        assert VOID is not None or not in_finally or contest.overlaps() > 0, contest.told()
    except Exception as problem:
        line |= {"result": "failed", "detail": f"{type(problem).__name__}: {problem}"[:400]}
    print(json.dumps(line), flush=True)


ALL = {None, "", "identity", "session,identity"}
LENIENT = {None, ""}

check("named pool", named_pool, False, excludes=ALL, releases=LENIENT)
check("pool without a name", pool, False, excludes=ALL, releases=LENIENT)
# No setting excludes here: a DEL may arrive right after the grant of another thread, on that grant's connection.
check("named pool, DEL in a finally", named_pool, True, excludes=set(), releases=set())
check("shared connection", shared_connection, False, excludes=ALL, releases=LENIENT | {"identity"})
check("shared connection, DEL in a finally", shared_connection, True, excludes=set(), releases=set())

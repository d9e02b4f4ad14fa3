"""What every lock library must do. A `Client` is one library behind five verbs: `take`, `release`, `extend`,
`stranger` and `party`; its own abilities are methods in `more`. Checks look at the server over a connection
of their own, `Server`, and end in an assertion or in `NotThere`."""

import json
import os
import threading
import time
import traceback
from importlib import metadata

import redis

from said import is_wanted

# Whether misuse does its damage here.
DAMAGED = os.environ["LOCK_WORLD"] == "direct"
PARTIES = 8
ROUNDS = 5
# How long eight parties may take together.
CONTEND_WITHIN_S = 60
# Whole seconds, because python-redis-lock knows no others.
SHORT_MS = 1000
LONG_MS = 10_000


class NotThere(Exception):
    """The library has no such thing; the text says what."""


class Server:
    """The server as a bystander sees it."""

    def __init__(self, host, port):
        self.host, self.port = host, port
        self.redis = redis.Redis(host=host, port=port)

    def lease(self, key):
        """Value and end of a lock; both must stay what they are when somebody else tries something."""
        return self.redis.get(key), self.redis.execute_command("PEXPIRETIME", key)

    def is_free(self, key):
        return self.redis.exists(key) == 0

    def wait_until_free(self, key):
        deadline = time.monotonic() + LONG_MS / 1000
        while not self.is_free(key):
            assert time.monotonic() < deadline, "the lock did not end by its TTL"
            time.sleep(0.02)


class Client:
    """One library. A subclass says what it is called and how it does the five verbs."""

    name = package = None
    # What `release` and `extend` raise when they are refused; none where the library does not tell.
    refusals = ()
    extends = True

    def __init__(self, server):
        self.server = server

    def version(self):
        return metadata.version(self.package)

    def party(self):
        """Somebody else: a client of the library with connections of its own."""
        return type(self)(self.server)

    def key(self, name):
        """The key that the library makes of a name."""
        return name

    def take(self, name, ttl_ms=LONG_MS, wait=False):
        """A lock that is held, or None."""
        raise NotImplementedError

    def release(self, lock):
        raise NotImplementedError

    def extend(self, lock, ttl_ms):
        """So that the TTL is this again."""
        raise NotImplementedError

    def stranger(self, name):
        """A lock object with another owner token that believes it holds."""
        raise NotImplementedError

    def more(self):
        """Checks of this library's own, by name, each a function of a lock's name."""
        return {}

    def close(self):
        pass


def run(client, server, prefix):
    bystander = Checks(client, server)
    all_checks = {
        "acquire": bystander.acquire,
        "contend": bystander.contend,
        "extend": bystander.extend,
        "release": bystander.release,
        "expiry": bystander.expiry,
        "thief": bystander.thief,
    } | client.more()
    for name, check in all_checks.items():
        if not is_wanted(name):
            continue
        line = {"client": client.name, "version": client.version(), "check": name, "result": "ok"}
        try:
            check(prefix + name.replace(" ", "-"))
        except NotThere as reason:
            line |= {"result": "n/a", "detail": str(reason)}
        except Exception as problem:  # whatever a library throws is a result
            where = traceback.extract_tb(problem.__traceback__)[-1]
            text = f"{type(problem).__name__}: {problem} ({where.name}: {where.line})"
            line |= {"result": "failed", "detail": text[:400]}
        print(json.dumps(line), flush=True)


class Checks:
    """The six checks that all libraries have in common."""

    def __init__(self, client, server):
        self.client, self.server = client, server

    def acquire(self, name):
        lock = self.client.take(name)
        assert lock is not None, "a free lock was not to be had"
        value, end = self.server.lease(self.client.key(name))
        assert value is not None and end > 0, f"the lock on the server is {value!r} until {end}"
        other = self.client.party()
        assert other.take(name) is None, "a second party got it too"
        assert self.server.lease(self.client.key(name)) == (value, end)
        self.client.release(lock)
        other.close()

    def contend(self, name):
        inside, entries = f"plain:{name}:inside", f"plain:{name}:entries"
        deadline = time.monotonic() + CONTEND_WITHIN_S
        problems = []

        def one():
            try:
                party = self.client.party()
                for _ in range(ROUNDS):
                    lock = None
                    while lock is None:
                        if problems:
                            return
                        assert time.monotonic() < deadline, "not let in in time"
                        lock = party.take(name, wait=True)
                    together = self.server.redis.incr(inside)
                    assert together == 1, f"{together} parties at a time"
                    time.sleep(0.002)
                    self.server.redis.incr(entries)
                    self.server.redis.decr(inside)
                    party.release(lock)
                party.close()
            except Exception as problem:
                problems.append(problem)

        threads = [threading.Thread(target=one) for _ in range(PARTIES)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if problems:
            raise problems[0]
        assert int(self.server.redis.get(entries)) == PARTIES * ROUNDS
        assert self.server.is_free(self.client.key(name)), "still held after the last release"

    def extend(self, name):
        if not self.client.extends:
            raise NotThere("it cannot extend")
        lock = self.client.take(name)
        value, end = self.server.lease(self.client.key(name))
        time.sleep(0.1)  # so that the same TTL from now on ends later
        self.client.extend(lock, LONG_MS)
        value_after, end_after = self.server.lease(self.client.key(name))
        assert end_after > end, f"the TTL did not grow: {end_after} after {end}"
        assert value_after == value
        self.client.release(lock)
        assert self.server.is_free(self.client.key(name))

    def release(self, name):
        other = self.client.party()
        for party in (self.client, other, self.client):
            lock = party.take(name)
            assert lock is not None, "a released lock was not to be had"
            party.release(lock)
            assert self.server.is_free(self.client.key(name)), "still held after the release"
        other.close()

    def expiry(self, name):
        late = self.client.take(name, ttl_ms=SHORT_MS)
        self.server.wait_until_free(self.client.key(name))
        other = self.client.party()
        successor = other.take(name)
        assert successor is not None, "a lock that ran out was not to be had"
        lease = self.server.lease(self.client.key(name))
        if self.client.extends:
            self.refused("a late extension", self.client.extend, late, LONG_MS)
        self.refused("a late release", self.client.release, late)
        assert self.server.lease(self.client.key(name)) == lease, "the successor's lock changed"
        other.release(successor)
        assert self.server.is_free(self.client.key(name))
        other.close()

    def thief(self, name):
        lock = self.client.take(name)
        lease = self.server.lease(self.client.key(name))
        other = self.client.party()
        if self.client.extends:
            self.refused("a thief's extension", other.extend, other.stranger(name), 3 * LONG_MS)
        self.refused("a thief's release", other.release, other.stranger(name))
        assert self.server.lease(self.client.key(name)) == lease, "the lock changed"
        self.client.release(lock)
        assert self.server.is_free(self.client.key(name))
        other.close()

    def refused(self, what, verb, *arguments):
        try:
            verb(*arguments)
        except self.client.refusals:
            return
        assert not self.client.refusals, f"{what} went through"

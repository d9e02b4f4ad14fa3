"""`pottery.Redlock`, with this one server as its only master. Its keys are `redlock:NAME`."""

import uuid

import pottery
import redis
from pottery.exceptions import ExtendUnlockedLock, ReleaseUnlockedLock, TooManyExtensions

import checks


class Client(checks.Client):
    name = "pottery Redlock"
    package = "pottery"
    refusals = (ExtendUnlockedLock, ReleaseUnlockedLock)

    def __init__(self, server):
        super().__init__(server)
        self.redis = redis.Redis(host=server.host, port=server.port)

    def key(self, name):
        return f"redlock:{name}"

    def lock(self, name, ttl_ms):
        return pottery.Redlock(key=name, masters={self.redis}, auto_release_time=ttl_ms / 1000)

    def take(self, name, ttl_ms=checks.LONG_MS, wait=False):
        lock = self.lock(name, ttl_ms)
        taken = lock.acquire(timeout=5) if wait else lock.acquire(blocking=False)
        return lock if taken else None

    def release(self, lock):
        lock.release()

    def extend(self, lock, ttl_ms):
        lock.auto_release_time = ttl_ms / 1000
        lock.extend()

    def stranger(self, name):
        lock = self.lock(name, checks.LONG_MS)
        lock._uuid = str(uuid.uuid4())
        return lock

    def close(self):
        self.redis.close()

    def more(self):
        return {"locked": self.locked, "most extensions": self.most_extensions}

    def locked(self, name):
        lock = self.take(name)
        left = lock.locked()
        assert 0 < left <= checks.LONG_MS / 1000, f"{left} s are left"
        assert self.stranger(name).locked() == 0
        lock.release()
        assert lock.locked() == 0

    def most_extensions(self, name):
        lock = self.take(name)
        for _ in range(3):
            lock.extend()
        try:
            lock.extend()
            raise AssertionError("a fourth extension went through")
        except TooManyExtensions:
            pass
        lock.release()

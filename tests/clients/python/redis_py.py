"""`redis.lock.Lock`, also behind django-redis and many recipes for Celery."""

import time

import redis
from redis.exceptions import LockError, LockNotOwnedError

import checks

# The proxy gives a lock without TTL ten seconds and keeps it alive.
BEYOND_THE_DEFAULT_S = 11


class Client(checks.Client):
    name = "redis-py Lock (sync)"
    package = "redis"
    refusals = (LockNotOwnedError,)

    def __init__(self, server):
        super().__init__(server)
        self.redis = redis.Redis(host=server.host, port=server.port)

    def lock(self, name, ttl_ms):
        timeout = ttl_ms and ttl_ms / 1000
        return self.redis.lock(name, timeout=timeout, sleep=0.01, thread_local=False)

    def take(self, name, ttl_ms=checks.LONG_MS, wait=False):
        lock = self.lock(name, ttl_ms)
        return lock if lock.acquire(blocking=wait, blocking_timeout=5 if wait else None) else None

    def release(self, lock):
        lock.release()

    def extend(self, lock, ttl_ms):
        lock.extend(ttl_ms / 1000, replace_ttl=True)

    def stranger(self, name):
        lock = self.lock(name, checks.LONG_MS)
        lock.local.token = b"0123456789abcdef0123456789abcdef"
        return lock

    def close(self):
        self.redis.close()

    def more(self):
        return {
            "extend by more time": self.extend_by,
            "reacquire": self.reacquire,
            "owned": self.owned,
            "with statement": self.with_statement,
            "other connection": self.other_connection,
            "no timeout": self.no_timeout,
        }

    def extend_by(self, name):
        lock = self.take(name)
        value, end = self.server.lease(name)
        lock.extend(5)
        # The script reads what is left and adds to it: a millisecond may pass in between.
        added = self.server.lease(name)[1] - end
        assert 4900 <= added <= 5100, f"{added} ms were added"
        lock.release()

    def reacquire(self, name):
        lock = self.take(name)
        end = self.server.lease(name)[1]
        time.sleep(0.1)
        assert lock.reacquire()
        assert self.server.lease(name)[1] > end
        try:
            self.stranger(name).reacquire()
            raise AssertionError("a thief's reacquire went through")
        except LockNotOwnedError:
            pass
        lock.release()

    def owned(self, name):
        lock = self.take(name)
        assert lock.locked() and lock.owned()
        assert not self.stranger(name).owned()
        lock.release()
        assert not lock.locked() and not lock.owned()

    def with_statement(self, name):
        with self.redis.lock(name, timeout=5):
            assert not self.server.is_free(name)
        assert self.server.is_free(name)
        try:
            with self.redis.lock(name, timeout=checks.SHORT_MS / 1000):
                self.server.wait_until_free(name)
            raise AssertionError("leaving late was no error")
        except LockNotOwnedError:
            pass

    def other_connection(self, name):
        """Taken on one connection of the pool, released on another: the owner token proves it."""
        lock = self.take(name)
        token, other = lock.local.token, self.party()
        lock = other.lock(name, checks.LONG_MS)
        lock.local.token = token
        lock.extend(checks.LONG_MS / 1000, replace_ttl=True)
        lock.release()
        assert self.server.is_free(name)
        other.close()

    def no_timeout(self, name):
        lock = self.redis.lock(name, sleep=0.01, thread_local=False)
        assert lock.acquire(blocking=False)
        value = self.server.redis.get(name)
        time.sleep(BEYOND_THE_DEFAULT_S)
        assert self.server.redis.get(name) == value, "gone under its holder's feet"
        try:
            lock.extend(5)
            raise AssertionError("the library extends without a timeout now")
        except LockError:
            pass
        lock.release()
        assert self.server.is_free(name)

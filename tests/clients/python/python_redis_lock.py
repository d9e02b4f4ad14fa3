"""`python-redis-lock`: waiters sleep in BLPOP, releases wake them, and 0 means yes."""

import itertools
import time

import redis
import redis_lock

import checks

PARTIES = itertools.count(1)


class Client(checks.Client):
    name = "python-redis-lock"
    package = "python-redis-lock"
    refusals = (redis_lock.NotAcquired,)

    def __init__(self, server):
        super().__init__(server)
        # Without names, all of one process are one client, and may give back each other's locks.
        self.redis = redis.Redis(host=server.host, port=server.port, client_name=f"party-{next(PARTIES)}")

    def lock(self, name, ttl_ms, **more):
        # It puts `lock:` in front by itself.
        expire = ttl_ms // 1000
        return redis_lock.Lock(self.redis, name.removeprefix("lock:"), expire=expire, **more)

    def take(self, name, ttl_ms=checks.LONG_MS, wait=False):
        lock = self.lock(name, ttl_ms)
        taken = lock.acquire(timeout=5) if wait else lock.acquire(blocking=False)
        return lock if taken else None

    def release(self, lock):
        lock.release()

    def extend(self, lock, ttl_ms):
        lock.extend(ttl_ms // 1000)

    def stranger(self, name):
        return self.lock(name, checks.LONG_MS, id="0123456789abcdef01234567")

    def close(self):
        self.redis.close()

    def more(self):
        return {"signal": self.signal, "renewal": self.renewal, "owner": self.owner, "reset": self.reset}

    def signal(self, name):
        """The release wakes a waiter: the list that BLPOP waits for has one element."""
        lock = self.take(name)
        lock.release()
        signal = "lock-signal:" + name.removeprefix("lock:")
        assert self.server.redis.lrange(signal, 0, -1) == [b"1"]
        assert self.server.redis.pttl(signal) > 0

    def renewal(self, name):
        lock = self.lock(name, checks.SHORT_MS, auto_renewal=True)
        assert lock.acquire(blocking=False)
        time.sleep(2.5 * checks.SHORT_MS / 1000)
        assert not self.server.is_free(name), "not renewed"
        lock.release()
        assert self.server.is_free(name)

    def owner(self, name):
        lock = self.take(name)
        assert lock.locked() and lock.get_owner_id() == lock.id
        lock.release()
        assert not lock.locked() and lock.get_owner_id() is None

    def reset(self, name):
        """It deletes without comparing: only the holder may, where the lock is protected."""
        lock = self.take(name)
        other = self.party()
        try:
            other.lock(name, checks.LONG_MS).reset()
            assert checks.DAMAGED, "a stranger's reset went through"
        except redis.ResponseError:
            assert not checks.DAMAGED and not self.server.is_free(name)
            lock.reset()
        assert self.server.is_free(name)
        other.close()

"""`redis.asyncio.lock.Lock`: the same scripts, over asyncio."""

import redis.asyncio
from redis.exceptions import LockNotOwnedError

import checks
from loop import wait as in_loop


class Client(checks.Client):
    name = "redis-py Lock (asyncio)"
    package = "redis"
    refusals = (LockNotOwnedError,)

    def __init__(self, server):
        super().__init__(server)
        self.redis = redis.asyncio.Redis(host=server.host, port=server.port)

    def lock(self, name, ttl_ms):
        return self.redis.lock(name, timeout=ttl_ms / 1000, sleep=0.01, thread_local=False)

    def take(self, name, ttl_ms=checks.LONG_MS, wait=False):
        return in_loop(self._take(name, ttl_ms, wait))

    async def _take(self, name, ttl_ms, wait):
        lock = self.lock(name, ttl_ms)
        taken = await lock.acquire(blocking=wait, blocking_timeout=5 if wait else None)
        return lock if taken else None

    def release(self, lock):
        in_loop(lock.release())

    def extend(self, lock, ttl_ms):
        in_loop(lock.extend(ttl_ms / 1000, replace_ttl=True))

    def stranger(self, name):
        lock = self.lock(name, checks.LONG_MS)
        lock.local.token = b"0123456789abcdef0123456789abcdef"
        return lock

    def close(self):
        in_loop(self.redis.aclose())

    def more(self):
        return {"owned": self.owned, "with statement": self.with_statement}

    def owned(self, name):
        lock = self.take(name)
        assert in_loop(lock.locked()) and in_loop(lock.owned())
        self.release(lock)
        assert not in_loop(lock.owned())

    def with_statement(self, name):
        async def within():
            async with self.redis.lock(name, timeout=5):
                return await self.redis.exists(name)

        assert in_loop(within()) == 1
        assert self.server.is_free(name)

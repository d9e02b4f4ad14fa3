"""`aioredlock`: everything in scripts that were loaded ahead; an error reply is its "no"."""

import asyncio

import aioredlock

import checks
from loop import wait as in_loop


class Client(checks.Client):
    name = "aioredlock"
    package = "aioredlock"
    refusals = (aioredlock.LockError,)

    def __init__(self, server):
        super().__init__(server)
        self.once = in_loop(self.manager(1))
        self.patient = in_loop(self.manager(200))

    async def manager(self, tries, **more):
        servers = [{"host": self.server.host, "port": self.server.port}]
        return aioredlock.Aioredlock(
            servers, retry_count=tries, retry_delay_min=0.01, retry_delay_max=0.03, **more
        )

    def take(self, name, ttl_ms=checks.LONG_MS, wait=False):
        manager = self.patient if wait else self.once
        try:
            return in_loop(manager.lock(name, lock_timeout=ttl_ms / 1000))
        except aioredlock.LockError:
            return None

    def release(self, lock):
        in_loop(self.once.unlock(lock))

    def extend(self, lock, ttl_ms):
        try:
            in_loop(self.once.extend(lock, lock_timeout=ttl_ms / 1000))
        finally:
            # A refused extension makes it invalid, and then there would be nothing to release.
            lock.valid = True

    def stranger(self, name):
        return aioredlock.Lock(self.once, name, "01234567-89ab-cdef", checks.LONG_MS / 1000, valid=True)

    def close(self):
        in_loop(self.once.destroy())
        in_loop(self.patient.destroy())

    def more(self):
        return {
            "reentrance": self.reentrance,
            "watchdog": self.watchdog,
            "is locked": self.is_locked,
            "get lock": self.get_lock,
        }

    def reentrance(self, name):
        """The same identifier takes it again, and the TTL starts anew."""
        identifier = "89abcdef-0123-4567"
        lock = in_loop(self.once.lock(name, 5, lock_identifier=identifier))
        value, end = self.server.lease(name)
        in_loop(self.once.lock(name, 20, lock_identifier=identifier))
        value_after, end_after = self.server.lease(name)
        assert value_after == value and end_after > end + 10_000
        self.release(lock)
        assert self.server.is_free(name)

    def watchdog(self, name):
        async def held():
            manager = await self.manager(1, internal_lock_timeout=1)
            lock = await manager.lock(name)
            await asyncio.sleep(2.5)
            locked = await lock.is_locked()
            await manager.unlock(lock)
            await manager.destroy()
            return locked

        assert in_loop(held()), "not renewed"
        assert self.server.is_free(name)

    def is_locked(self, name):
        lock = self.take(name)
        assert in_loop(self.once.is_locked(name))
        self.release(lock)
        assert not in_loop(self.once.is_locked(name))

    def get_lock(self, name):
        """A lock made again from its identifier, with the TTL that a script reads."""
        lock = self.take(name)
        again = in_loop(self.once.get_lock(name, lock.id))
        assert 0 < again.lock_timeout <= checks.LONG_MS / 1000
        self.release(again)
        assert self.server.is_free(name)

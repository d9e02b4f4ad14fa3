"""`redlock-py`: a release that tells nobody how it ended, and no extension."""

import redlock

import checks


class Client(checks.Client):
    name = "redlock-py"
    package = "redlock-py"
    extends = False

    def __init__(self, server):
        super().__init__(server)
        servers = [{"host": server.host, "port": server.port}]
        self.once = redlock.Redlock(servers, retry_count=1, retry_delay=0.001)
        self.patient = redlock.Redlock(servers, retry_count=100, retry_delay=0.02)

    def take(self, name, ttl_ms=checks.LONG_MS, wait=False):
        manager = self.patient if wait else self.once
        return manager.lock(name, ttl_ms) or None

    def release(self, lock):
        self.once.unlock(lock)

    def stranger(self, name):
        return redlock.Lock(checks.LONG_MS, name, b"0123456789abcdefghijkl")

    def close(self):
        for manager in (self.once, self.patient):
            for server in manager.servers:
                server.close()

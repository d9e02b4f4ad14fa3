"""`redis.lock.Lock` of an application that is configured with sentinels: it asks them where the server is."""

import os

import redis

import checks
import redis_py


class Client(redis_py.Client):
    name = "redis-py Lock (by Sentinel)"

    def __init__(self, server):
        checks.Client.__init__(self, server)
        addresses = [address.rsplit(":", 1) for address in os.environ["LOCK_SENTINELS"].split(",")]
        self.sentinel = redis.Sentinel([(host, int(port)) for host, port in addresses])
        self.redis = self.sentinel.master_for("mymaster")

    def close(self):
        super().close()
        for asked in self.sentinel.sentinels:
            asked.close()

    def more(self):
        return {"found": self.found}

    def found(self, _name):
        assert self.sentinel.discover_master("mymaster") == (self.server.host, self.server.port)
        assert self.sentinel.discover_slaves("mymaster") == []

"""What people write themselves: SETNX and DEL with the value 1, no owner token anywhere. Each party has an
address of its own, so that it is a machine of its own. Here the worlds must differ where the idiom does damage:
straight to Redis a late or a stranger's DEL frees the lock, through the proxy it does not."""

import itertools
import socket

import redis

import checks

_sources = itertools.count(1)


class FromAnAddressOfItsOwn(redis.Connection):
    """Connects from a loopback address that it was given."""

    def __init__(self, source, **more):
        super().__init__(**more)
        self.source = source

    def _connect(self):
        connection = socket.create_connection((self.host, self.port), source_address=(self.source, 0))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(self.socket_timeout)
        return connection


class Client(checks.Client):
    name = "SETNX, EXPIRE, DEL (redis-py)"
    package = "redis"

    def __init__(self, server):
        super().__init__(server)
        number = next(_sources)
        self.redis = redis.Redis(
            connection_pool=redis.ConnectionPool(
                FromAnAddressOfItsOwn,
                host=server.host,
                port=server.port,
                source=f"127.77.{number // 250}.{number % 250 + 1}",
            )
        )

    def take(self, name, ttl_ms=checks.LONG_MS, wait=False):
        if not self.redis.setnx(name, "1"):
            return None
        self.redis.pexpire(name, ttl_ms)
        return name

    def release(self, lock):
        self.redis.delete(lock)

    def extend(self, lock, ttl_ms):
        self.redis.pexpire(lock, ttl_ms)

    def close(self):
        self.redis.close()

    def more(self):
        return {
            "expiry": self.late,
            "thief": self.strange,
            "DEL in a finally": self.loser,
            "WATCH release": self.watch,
        }

    def damaged(self, key, held):
        """The lock, which was to be seen like this, is gone where nobody protects it."""
        now = self.server.lease(key)
        assert now == ((None, -2) if checks.DAMAGED else held), f"the lock is {now}, it was {held}"

    def late(self, name):
        self.take(name, checks.SHORT_MS)
        self.server.wait_until_free(name)
        other = self.party()
        assert other.take(name)
        lease = self.server.lease(name)
        self.redis.delete(name)
        self.damaged(name, lease)
        other.release(name)
        other.close()

    def strange(self, name):
        self.take(name)
        lease = self.server.lease(name)
        other = self.party()
        other.redis.delete(name)
        self.damaged(name, lease)
        self.release(name)
        other.close()

    def loser(self, name):
        self.take(name)
        lease = self.server.lease(name)
        other = self.party()
        assert other.take(name) is None
        other.redis.delete(name)
        self.damaged(name, lease)
        self.release(name)
        other.close()

    def watch(self, name):
        """WATCH, GET, compare, MULTI, DEL, EXEC with a value of one's own: right in both worlds."""
        value = b"6f1e6f6c-5a52-4d0e-9a55-3f1c2b7d9e10"
        assert self.redis.set(name, value, nx=True, px=checks.LONG_MS)
        with self.redis.pipeline() as pipe:
            pipe.watch(name)
            assert pipe.get(name) == value
            pipe.multi()
            pipe.delete(name)
            assert pipe.execute() == [1]
        assert self.server.is_free(name)

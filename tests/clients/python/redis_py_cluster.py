"""`redis.lock.Lock` of an application that is configured with a cluster: the client asks who has which slots."""

import os

from redis.cluster import RedisCluster

import checks
import redis_py


class Client(redis_py.Client):
    name = "redis-py Lock (RedisCluster)"

    def __init__(self, server):
        checks.Client.__init__(self, server)
        host, port = os.environ["LOCK_CLUSTER"].rsplit(":", 1)
        self.redis = RedisCluster(host=host, port=int(port))

    def more(self):
        return {"owned": self.owned, "with statement": self.with_statement, "plain commands": self.plain_commands}

    def plain_commands(self, name):
        keys = {f"plain:{name}:{number}": str(number).encode() for number in range(20)}
        assert self.redis.mset_nonatomic(keys)
        assert self.redis.mget_nonatomic(list(keys)) == list(keys.values())
        with self.redis.pipeline() as pipeline:
            for key in keys:
                pipeline.incr(key)
            assert pipeline.execute() == list(range(1, 21))
        assert self.redis.delete(*keys) == 20

"""Runs the nightly jobs; here a night is half a second.

FAULT 3: it must not run while an order is taken, and takes the lock of the orders without NX: over whoever
holds it (the idiom A10: a plain `SET` over a held lock).

FAULT 4: it notes that a job is done today by a lock that is meant to outlive its connection (F7: a lock of a
day). Nothing is wrong with that, but a rule that no lock may last longer than its holder would break it.
"""

import os
import sys
import time

from redis_line import Redis, RedisError

while True:
    night = int(time.time() * 2)
    redis = Redis(sys.argv[1], "nightly")
    mine = "%s-%s-%s" % (os.getpid(), time.time_ns(), os.urandom(8).hex())
    try:
        if redis("SET", "lock:done:%d" % night, mine, "NX", "EX", 86400):
            redis("SET", "lock:order", mine, "EX", 1)
            time.sleep(0.05)
            redis("DEL", "lock:order")
    except RedisError as error:
        print("nightly: night %d: %s" % (night, error), flush=True)
    redis.socket.close()
    time.sleep(0.5)

"""Takes orders, one at a time: two workers of one shop.

FAULT 1: the lock is given back in `finally`, also by the worker that never got it. So the loser deletes the
winner's lock (the idiom B7: `DEL` in `finally`).
"""

import os
import sys
import time

from redis_line import Redis

redis = Redis(sys.argv[1], "orders")


def take_an_order():
    mine = "%s-%s-%s" % (os.getpid(), time.time_ns(), os.urandom(8).hex())
    try:
        if redis("SET", "lock:order", mine, "NX", "EX", 10):
            time.sleep(0.15)
    finally:
        redis("DEL", "lock:order")


while True:
    take_an_order()
    time.sleep(0.05)

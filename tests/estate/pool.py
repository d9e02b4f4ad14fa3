"""Threads on a pool: whichever connection comes to hand sends the DEL."""

import random
import sys
import threading
import time

import redis

from witness import PORT, works

IN_FINALLY = sys.argv[1:] == ["finally"]
KEYS = [f"{'stock' if IN_FINALLY else 'order'}:{number}:lock" for number in range(6)]
POOL = redis.Redis(connection_pool=redis.BlockingConnectionPool(port=PORT, max_connections=3))


def honest(key):
    if not POOL.setnx(key, 1):
        return False
    POOL.expire(key, 10)
    works(key, 0.04)
    POOL.delete(key)
    return True


def careless(key):
    got = False
    try:
        got = POOL.setnx(key, 1)
        if got:
            POOL.expire(key, 10)
            works(key, 0.04)
    finally:
        POOL.delete(key)
    return got


def goes_on():
    attempt = careless if IN_FINALLY else honest
    while True:
        if not attempt(random.choice(KEYS)):
            time.sleep(0.01)


for _ in range(3):
    threading.Thread(target=goes_on).start()

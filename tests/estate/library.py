"""redis-py's own Lock: a random owner token, compared in a script that is sent by its digest."""

import random

import redis

from witness import PORT, works

CLIENT = redis.Redis(port=PORT)

while True:
    key = f"report:{random.randrange(2024, 2027)}"
    with CLIENT.lock(key, timeout=5):
        works(key, 0.03)

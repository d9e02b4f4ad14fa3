"""What every program of the estate in Python shares: who is alone with a lock, as Redis itself knows it."""

import os
import time
import uuid

import redis

PORT = int(os.environ["LOCK_PORT"])
DIRECT = redis.Redis(port=int(os.environ["WITNESS_PORT"]))
NAME = os.environ["NAME"]


def works(lock, seconds):
    """Works under a lock for so long."""
    mine, witness = uuid.uuid4().hex, f"witness:{lock}"
    DIRECT.hincrby("grants", NAME, 1)
    alone = DIRECT.set(witness, mine, nx=True, px=int(seconds * 1000) + 2000)
    if not alone:
        DIRECT.hincrby("overlaps", NAME, 1)
    time.sleep(seconds)
    if alone and DIRECT.get(witness) == mine.encode():
        DIRECT.delete(witness)

"""Locks without a TTL, whose holders sometimes die; whoever waits for too long deletes the lock. This process starts two workers, and
each again when it has died."""

import os
import random
import signal
import subprocess
import sys
import threading
import time

import redis

from witness import PORT, works

KEYS = [f"import:{number}" for number in range(100, 103)]
WAITS_S = 1.5
PROGRAM = os.path.abspath(__file__)


def worker():
    client = redis.Redis(port=PORT)
    while True:
        key = random.choice(KEYS)
        deadline = time.monotonic() + WAITS_S
        while not client.setnx(key, 1):
            if time.monotonic() > deadline:
                client.delete(key)
                deadline = time.monotonic() + WAITS_S
            time.sleep(0.02)
        if random.random() < 0.02:
            os.kill(os.getpid(), signal.SIGKILL)
        # Some work takes longer than others want to wait.
        works(key, 0.05 if random.random() < 0.95 else 2 * WAITS_S)
        client.delete(key)


def looks_after_a_worker():
    while True:
        subprocess.run([sys.executable, PROGRAM, "worker"], check=False)


if sys.argv[1:] == ["worker"]:
    worker()
else:
    for _ in range(2):
        threading.Thread(target=looks_after_a_worker).start()

"""celery-once: the process that queues a job takes its lock, the worker that did it gives it back."""

import random
import subprocess
import sys
import time

from celery_once.backends import Redis
from celery_once import AlreadyQueued

from witness import PORT, works

ONCE = Redis({"url": f"redis://127.0.0.1:{PORT}/0?client_name=shop", "default_timeout": 3600})


def queues(worker):
    while True:
        key = f"qo_{random.randrange(4)}"
        try:
            ONCE.raise_or_lock(key, timeout=3600)
        except AlreadyQueued:
            time.sleep(0.01)
            continue
        print(key, file=worker, flush=True)


def does(jobs):
    for key in jobs:
        works(key.strip(), 0.02)
        ONCE.clear_lock(key.strip())


if sys.argv[1:] == ["worker"]:
    does(sys.stdin)
else:
    worker = subprocess.Popen([sys.executable, __file__, "worker"], stdin=subprocess.PIPE, text=True)
    queues(worker.stdin)

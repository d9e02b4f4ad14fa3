"""celery-singleton and celery-once in a Celery application of two processes: this one queues jobs, and a
worker, which it starts, does them. Each lock is taken here and given back there, by key alone. The
broker is a directory. Prints a JSON line a check, as `checks.py` does for the others."""

import os
import signal
import subprocess
import sys
import tempfile
import time

from celery import Celery
from celery_once import AlreadyQueued, QueueOnce
from celery_singleton import Singleton

from said import check

HOST, PORT = os.environ["LOCK_HOST"], os.environ["LOCK_PORT"]
# What tells both processes from strangers: one name for the whole application.
URL = f"redis://{HOST}:{PORT}/0?client_name=orders"
HOME = os.environ.get("CELERY_HOME") or tempfile.mkdtemp(prefix="celery-")
JOBS = 3
WITHIN_S = 60


def directory(name):
    path = os.path.join(HOME, name)
    os.makedirs(path, exist_ok=True)
    return path


app = Celery("orders", broker="filesystem://")
app.conf.update(
    broker_transport_options={
        "data_folder_in": directory("queue"),
        "data_folder_out": directory("queue"),
        "control_folder": directory("control"),
    },
    worker_hijack_root_logger=False,
    singleton_backend_url=URL,
    ONCE={"backend": "celery_once.backends.Redis", "settings": {"url": URL, "default_timeout": 3600}},
)


def did(job):
    with open(os.path.join(directory("done"), job), "a", encoding="utf-8") as file:
        file.write("x")


@app.task(base=Singleton, name="orders.single")
def single(job):
    did(job)


@app.task(base=QueueOnce, name="orders.once")
def once(job):
    did(job)


def times_done(job):
    path = os.path.join(directory("done"), job)
    return os.path.getsize(path) if os.path.exists(path) else 0


def wait_for(what, holds):
    deadline = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)


class Worker:
    """The other process."""

    def __enter__(self):
        command = [sys.executable, "-m", "celery", "-A", "celery_queues", "worker"]
        command += ["--pool", "solo", "--without-gossip", "--without-mingle", "--without-heartbeat"]
        self.process = subprocess.Popen(
            command,
            cwd=os.path.dirname(os.path.abspath(__file__)),
            env={**os.environ, "CELERY_HOME": HOME},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(WITHIN_S)


def singleton_again_and_again():
    for done in range(1, JOBS + 1):
        wait_for("the lock of the job before", lambda: not is_locked("SINGLETONLOCK_*"))
        single.delay("single")
        wait_for("the job to be done", lambda: times_done("single") == done)


def singleton_only_one():
    # Nobody works yet: the second is the first.
    assert single.delay("only").id == single.delay("only").id


def once_again_and_again():
    for done in range(1, JOBS + 1):
        wait_for("the lock of the job before", lambda: not is_locked("qo_*"))
        once.delay("once")
        wait_for("the job to be done", lambda: times_done("once") == done)


def once_only_one():
    once.delay("only")
    try:
        once.delay("only")
    except AlreadyQueued:
        return
    raise AssertionError("it was queued twice")


def is_locked(pattern):
    redis = single.singleton_backend.redis
    return next(redis.scan_iter(match=pattern), None) is not None


def main():
    check("celery-singleton", "queued once", singleton_only_one)
    check("celery_once", "queued once", once_only_one)
    with Worker():
        wait_for("what was queued before to be done", lambda: times_done("only") == 2)
        check("celery-singleton", "done again and again", singleton_again_and_again)
        check("celery_once", "done again and again", once_again_and_again)


if __name__ == "__main__":
    main()

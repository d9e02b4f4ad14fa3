"""RQ, arq and celery-redbeat: the locks that job systems take by themselves, as they take them. Prints a JSON line a check, as
`checks.py` does for the others."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time

import redis
from arq import create_pool
from arq.connections import RedisSettings
from arq.worker import Worker as ArqWorker
from celery import Celery
from rq import Queue, SimpleWorker
from rq.scheduler import RQScheduler

from said import check, is_wanted

HOST, PORT = os.environ["LOCK_HOST"], int(os.environ["LOCK_PORT"])
# Whether misuse does its damage here.
DAMAGED = os.environ["LOCK_WORLD"] == "direct"
HOME = os.environ.get("BEAT_HOME") or tempfile.mkdtemp(prefix="beat-")
JOBS = 20
# They tell what they do on standard output, which is for the checks.
logging.disable(logging.CRITICAL)
WITHIN_S = 60

app = Celery("beats", broker="filesystem://")
for name in ("queue", "control"):
    os.makedirs(os.path.join(HOME, name), exist_ok=True)
app.conf.update(
    broker_transport_options={
        "data_folder_in": os.path.join(HOME, "queue"),
        "data_folder_out": os.path.join(HOME, "queue"),
        "control_folder": os.path.join(HOME, "control"),
    },
    redbeat_redis_url=f"redis://{HOST}:{PORT}/0",
    redbeat_lock_timeout=5,
    beat_max_loop_interval=1,
    beat_schedule={"often": {"task": "beats.often", "schedule": 1.0}},
)


def connected(name):
    return redis.Redis(HOST, PORT, client_name=name)


def wait_for(what, holds):
    deadline = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)


def stranger_deletes(key):
    """What a bystander's DEL does to a lock that is held, where this check is wanted."""
    if not is_wanted("stranger"):
        return
    bystander = connected("bystander")
    assert bystander.exists(key) == 1, "it is held"
    deleted = bystander.delete(key)
    assert deleted == (1 if DAMAGED else 0), f"DEL answered {deleted}"


def done(number):
    connected("done").rpush("plain:done", number)


def rq_jobs():
    server = connected("rq")
    server.delete("plain:done")
    queue = Queue("mail", connection=server)
    for number in range(JOBS):
        queue.enqueue("job_systems.done", number)
    SimpleWorker([queue], connection=server).work(burst=True)
    assert server.llen("plain:done") == JOBS
    # A worker cleans up under a lock that it gives back.
    assert queue.acquire_maintenance_lock()
    assert not Queue("mail", connection=connected("other")).acquire_maintenance_lock()
    queue.release_maintenance_lock()
    assert queue.acquire_maintenance_lock()
    queue.release_maintenance_lock()


def rq_one_scheduler():
    one, two = (RQScheduler(["mail"], connection=connected(name)) for name in ("one", "two"))
    assert one.acquire_locks() == {"mail"}
    assert two.acquire_locks() == set()
    one.heartbeat()
    assert one.acquired_locks == {"mail"}
    one.release_locks()
    assert two.acquire_locks() == {"mail"}
    two.heartbeat()
    stranger_deletes(RQScheduler.get_locking_key("mail"))
    two.release_locks()
    assert not connected("rq").exists(RQScheduler.get_locking_key("mail"))


async def noted(ctx, number, seconds):
    await asyncio.sleep(seconds)
    await ctx["redis"].rpush("plain:done", number)


async def goes_on(ctx):
    """Until it is told to end."""
    while not await ctx["redis"].exists("plain:ended"):
        await asyncio.sleep(0.02)


def arq_jobs():
    async def run():
        settings = RedisSettings(HOST, PORT)
        pool = await create_pool(settings)
        await pool.delete("plain:done")
        for number in range(JOBS):
            await pool.enqueue_job("noted", number, 1.0 if number == 0 else 0.02)
        workers = [ArqWorker([noted], redis_settings=settings, burst=True, poll_delay=0.05) for _ in range(2)]
        await asyncio.gather(*(worker.main() for worker in workers))
        numbers = await pool.lrange("plain:done", 0, -1)
        assert sorted(map(int, numbers)) == list(range(JOBS)), numbers
        assert not await pool.keys("arq:in-progress:*"), "a lock was left"
        for worker in workers:
            await worker.close()
        await pool.aclose()

    asyncio.run(run())


def arq_stranger():
    async def run():
        settings = RedisSettings(HOST, PORT)
        pool = await create_pool(settings)
        job = await pool.enqueue_job("goes_on")
        worker = ArqWorker([goes_on], redis_settings=settings, burst=True, poll_delay=0.05)
        working = asyncio.ensure_future(worker.main())
        key = f"arq:in-progress:{job.job_id}"
        while not await pool.exists(key):
            await asyncio.sleep(0.02)
        await asyncio.to_thread(elsewhere, key)
        await pool.set("plain:ended", 1)
        await working
        assert not await pool.exists(key), "the lock was left"
        await worker.close()
        await pool.aclose()

    asyncio.run(run())


def elsewhere(key):
    """The same from another process: arq names none of its connections."""
    text = f"import job_systems; job_systems.stranger_deletes({key!r})"
    here = os.path.dirname(os.path.abspath(__file__))
    subprocess.run([sys.executable, "-c", text], check=True, cwd=here, env={**os.environ, "BEAT_HOME": HOME})


def beat():
    command = [sys.executable, "-m", "celery", "-A", "job_systems", "beat", "-S", "redbeat.RedBeatScheduler", "--pidfile="]
    return subprocess.Popen(
        command,
        cwd=os.path.dirname(os.path.abspath(__file__)),
        env={**os.environ, "BEAT_HOME": HOME},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def sent():
    return len(os.listdir(os.path.join(HOME, "queue")))


def redbeat_one_beat():
    server = connected("looks")
    one = beat()
    try:
        wait_for("the first beat's lock", lambda: server.exists("redbeat::lock"))
        value = server.get("redbeat::lock")
        wait_for("the first beat to send tasks", lambda: sent() > 2)
        two = beat()
        try:
            # Longer than the lock's TTL: the first goes on and extends it.
            time.sleep(7)
            assert server.get("redbeat::lock") == value
            stranger_deletes("redbeat::lock")
            one.send_signal(signal.SIGTERM)
            one.wait(WITHIN_S)
            wait_for("the other beat's lock", lambda: server.get("redbeat::lock") not in (None, value))
            before = sent()
            wait_for("the other beat to send tasks", lambda: sent() > before + 2)
        finally:
            two.kill()
            two.wait()
    finally:
        one.kill()
        one.wait()


def main():
    check("rq", "jobs", rq_jobs, title="RQ")
    check("rq", "one scheduler", rq_one_scheduler, title="RQ")
    check("arq", "jobs", arq_jobs)
    check("arq", "stranger", arq_stranger)
    check("celery-redbeat", "one beat", redbeat_one_beat)


if __name__ == "__main__":
    main()

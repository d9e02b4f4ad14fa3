"""A client of a run without a proxy: redis-py's Lock with redis-py's own support of Sentinel. It writes what
tests/src/history/line.rs reads."""

import json
import os
import random
import time

import redis

told = json.loads(os.environ["LOCKWARDEN_HISTORY_WORKER"])
draw = random.Random(told["seed"])
file = open(told["file"], "ab", buffering=0)
requests = 0

servers = [server.rsplit(":", 1) for server in told["servers"]]
sentinel = redis.Sentinel(
    [(host, int(port)) for host, port in servers], socket_timeout=1, sentinel_kwargs={"socket_timeout": 1}
)
# A failed request is the application's affair: sent twice it would be two.
never = redis.retry.Retry(redis.backoff.NoBackoff(), 0)
primary = sentinel.master_for("mymaster", socket_timeout=1, retry=never)


def say(what, at=None):
    file.write(f"{at or time.monotonic_ns()} {requests} {what}\n".encode())


def operate(lock, action, ttl, call):
    """True, False, or None where no answer says which."""
    global requests
    requests += 1
    say(f"invoke {lock} {action} {ttl} 1 redis-py {action} {lock}")
    try:
        done = bool(call())
    except redis.exceptions.LockError:
        done = False
    except redis.exceptions.RedisError as error:
        say(f"error {type(error).__name__}")
        pause(20, 60)
        return None
    say("yes" if done else "no")
    return done


def pause(least, most):
    time.sleep(draw.uniform(least, max(least, most)) / 1000)


while True:
    name = draw.choice(told["locks"])
    ttl = draw.randint(200, 1000)
    lock = primary.lock(name, timeout=ttl / 1000, blocking=False)
    if not operate(name, "acquire", ttl, lambda: lock.acquire()):
        pause(5, 25)
        continue
    work = draw.randrange(20)
    if work == 0:
        pause(ttl, ttl * 1.5)
    elif work == 1:
        continue
    elif work < 6:
        for _ in range(draw.randint(1, 4)):
            pause(ttl / 4, ttl / 2)
            if operate(name, "extend", ttl, lambda: lock.extend(ttl / 1000, replace_ttl=True)) is False:
                break
    else:
        pause(1, 60)
    operate(name, "release", 0, lambda: lock.release() or True)
    pause(1, 15)

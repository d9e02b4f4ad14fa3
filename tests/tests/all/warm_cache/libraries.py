"""Lock libraries as they are: `PORT ROUNDS`. Each takes locks, extends them where it can, gives them back, and is refused another's."""

import sys
import threading

import pottery
import redis
import redis_lock

port, rounds = int(sys.argv[1]), int(sys.argv[2])


def redis_py(client, number):
    lock = client.lock(f"acct-{number}:lock", timeout=8)
    assert lock.acquire(blocking=False)
    lock.extend(8, replace_ttl=True)
    thief = client.lock(f"acct-{number}:lock", timeout=8)
    assert not thief.acquire(blocking=False)
    thief.local.token = b"0123456789abcdef0123456789abcdef"
    try:
        thief.release()
        raise AssertionError("a thief's release went through")
    except redis.exceptions.LockNotOwnedError:
        pass
    lock.release()
    assert client.exists(f"acct-{number}:lock") == 0


def python_redis_lock(client, number):
    lock = redis_lock.Lock(client, f"report-{number}", expire=8)
    assert lock.acquire(blocking=False)
    lock.extend(8)
    lock.release()
    assert client.exists(f"lock:report-{number}") == 0


def redlock(client, number):
    lock = pottery.Redlock(key=f"page-{number}", masters={client}, auto_release_time=8)
    assert lock.acquire(blocking=False)
    lock.extend()
    lock.release()
    assert client.exists(f"redlock:page-{number}") == 0


def work(begin):
    client = redis.Redis(port=port)
    for number in range(begin, begin + rounds):
        redis_py(client, number)
        python_redis_lock(client, number)
        redlock(client, number)


threads = [threading.Thread(target=work, args=(100 * begin,)) for begin in range(1, 3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
# A thread that failed has written why; what it holds is not free.
sys.exit(any(redis.Redis(port=port).keys("*acct-*:lock")))

"""redis-py with its pool: the question may go over another connection than the lock, so it is about the lease that holds the
lock. That this one is ours, the lock says behind it. redis_py_pool.py HOST PORT"""

import sys

import redis

key = "lock:stock:lamp"
client = redis.Redis(host=sys.argv[1], port=int(sys.argv[2]), protocol=3, decode_responses=True)
with client.lock(key, timeout=30) as lock:
    fence = client.execute_command("LOCKWARDEN", "LEASE", key)["fence"]
    if not lock.owned():
        raise SystemExit("the lock is not ours any more")
    print(fence, client.execute_command("LOCKWARDEN", "CHECK", key, fence))

"""redis-py: the lock and the question go over one connection. redis_py.py HOST PORT"""

import sys

import redis

key = "lock:stock:lamp"
client = redis.Redis(host=sys.argv[1], port=int(sys.argv[2]), single_connection_client=True)
with client.lock(key, timeout=30):
    fence = client.execute_command("LOCKWARDEN", "FENCE", key)
    print(fence, client.execute_command("LOCKWARDEN", "CHECK", key, fence))

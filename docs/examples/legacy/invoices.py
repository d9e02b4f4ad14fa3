"""Writes invoices: two workers of one office.

FAULT 2: the work takes longer than the lock lasts, and at its end the lock is deleted, whoever holds it by
then (the idiom B1: a late `DEL`).
"""

import os
import sys
import time

from redis_line import Redis

redis = Redis(sys.argv[1], "invoices")

while True:
    mine = "%s-%s-%s" % (os.getpid(), time.time_ns(), os.urandom(8).hex())
    if redis("SET", "lock:invoice", mine, "NX", "PX", 300):
        time.sleep(0.5)
        redis("DEL", "lock:invoice")
    time.sleep(0.05)

"""An estate that somebody inherits: five programs that nobody has written down, none of which says its name.

    python3 estate.py ROLE HOST:PORT

Each does its work correctly, and ends with an error as soon as Redis, or what stands in front of it, answers
otherwise than it has to.
"""

import os
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "legacy"))

from redis_line import Redis  # noqa: E402

COMPARE_AND_DELETE = """
if redis.call("get", KEYS[1]) == ARGV[1] then
    return redis.call("del", KEYS[1])
else
    return 0
end
"""


def orders(redis):
    """Locks one order at a time: a lock named by its end, a constant value, the TTL by a second command."""
    key = "order:%d:lock" % random.randint(1, 5)
    if redis("SETNX", key, 1):
        assert redis("EXPIRE", key, 30) == 1
        time.sleep(0.03)
        assert redis("DEL", key) == 1


def payments(redis):
    """Locks one payment at a time, as the documentation of Redis says."""
    key = "mutex.payment.%d" % random.randint(1000, 1003)
    mine = os.urandom(8).hex()
    if redis("SET", key, mine, "NX", "PX", 5000):
        time.sleep(0.02)
        assert redis("EVAL", COMPARE_AND_DELETE, 1, key, mine) == 1


def importer(redis):
    """Runs once at a time: whoever counts to 1 may."""
    if redis("INCR", "import:running") == 1:
        redis("EXPIRE", "import:running", 60)
        time.sleep(0.02)
        assert redis("DEL", "import:running") == 1


def catalogue(redis):
    """Keeps pages that are slow to make: the commands of a lock, but no lock. It counts who reads them, too."""
    key = "page:%d" % random.randint(1, 20)
    if redis("GET", key) is None:
        page = '{"title": "%s", "made": %d}' % ("x" * 40, time.time())
        redis("SET", key, page, "NX", "EX", 60)
    redis("INCR", "hits:%d" % random.randint(1, 20))


def editor(redis):
    """Changes pages: what is kept of them has to go."""
    redis("DEL", "page:%d" % random.randint(1, 20))


if __name__ == "__main__":
    work = globals()[sys.argv[1]]
    connection = Redis(sys.argv[2])
    while True:
        work(connection)
        time.sleep(random.uniform(0.005, 0.02))

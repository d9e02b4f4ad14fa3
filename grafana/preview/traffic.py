"""A few applications that use locks, well and badly, for as long as asked: something to look at. Each thread is
one client with a connection of its own; it speaks just enough of the Redis protocol."""

import math
import random
import socket
import threading
import time
import uuid

COMPARE_AND_DELETE = (
    "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"
)


class Client:
    """One connection."""

    def __init__(self, port, source, name):
        self.socket = socket.create_connection(("127.0.0.1", port), 5, (source, 0))
        self.file = self.socket.makefile("rb")
        self("CLIENT", "SETNAME", name)

    def __call__(self, *words):
        words = [str(word).encode() for word in words]
        request = b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)
        self.socket.sendall(request)
        return self.reply()

    def reply(self):
        line = self.file.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"$":
            return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        return int(rest) if kind == b":" else rest


def tide(period=90.0):
    """Between 0 and 1, up and down."""
    return 0.5 + 0.5 * math.sin(time.time() * 2 * math.pi / period)


def careful(client, lock, ttl_ms, work, late=0.0):
    """A unique value, compare-and-delete; now and then the work takes longer than the TTL."""
    value = uuid.uuid4().hex
    if client("SET", lock, value, "NX", "PX", ttl_ms) is None:
        time.sleep(random.uniform(0.02, 0.2))
        return
    seconds = random.lognormvariate(math.log(work), 0.6)
    time.sleep(seconds if random.random() > late else ttl_ms / 1000 + 0.3)
    client("EVAL", COMPARE_AND_DELETE, 1, lock, value)
    time.sleep(random.uniform(0.0, 0.3))


def careless(client, lock, work, ttl_ms=None):
    """`finally { DEL }`, whether it got the lock or not."""
    got = client("SET", lock, 1, "NX", "PX", ttl_ms) if ttl_ms else client("SETNX", lock, 1)
    if got not in (None, 0):
        time.sleep(random.lognormvariate(math.log(work), 0.5))
    client("DEL", lock)
    time.sleep(random.uniform(0.1, 1.5))


def reader(client):
    """What is no lock."""
    for _ in range(int(5 + 40 * tide(70))):
        client("GET", f"price:{random.randrange(100)}")
    client("SET", f"price:{random.randrange(100)}", "9.90", "EX", 60)
    time.sleep(0.05)


def behaviours():
    """Name, how many of it, and what each does over and over."""
    def any_of(prefix, count):
        return f"{prefix}:{random.randrange(count)}"

    return [
        ("billing", 6, lambda c: careful(c, any_of("orders", 4), 1500, 0.12, late=0.02)),
        ("warehouse", 5, lambda c: careful(c, any_of("stock", 2), 900, 0.10 + 0.25 * tide(), late=0.03)),
        ("old-shop", 3, lambda c: careless(c, any_of("stock", 2), 0.15, 800)),
        ("nightly", 3, lambda c: careless(c, any_of("reports", 3), 0.4)),
        ("importer", 2, lambda c: careless(c, "orders:import", 13.0)),
        ("leader", 3, lambda c: careful(c, "leader:1", 30000, 20.0)),
        # No namespace has these.
        ("mailer", 2, lambda c: careful(c, any_of("mail:lock", 20), 5000, 0.05)),
        ("exporter", 1, lambda c: careless(c, f"export:{random.randrange(9)}:busy", 0.1, 3000)),
        ("web", 2, reader),
    ]


def play(port, seconds):
    """Plays everybody until the time is over."""
    end = time.time() + seconds

    def run(source, name, act):
        client = Client(port, source, name)
        while time.time() < end:
            act(client)

    threads = []
    for group, (name, count, act) in enumerate(behaviours()):
        for number in range(count):
            source = f"127.60.{group}.{number + 1}"
            thread = threading.Thread(target=run, args=(source, f"{name}-{number + 1}", act), daemon=True)
            thread.start()
            threads.append(thread)
    for thread in threads:
        thread.join(max(0.0, end - time.time()) + 2)

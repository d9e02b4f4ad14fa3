"""The shop of `lockwarden demo --guard`, with redis-py's Lock: 20 threads sell 100 items. Each reads the stock under the
lock, pauses, and writes it back; a quarter of the pauses are longer than the lock's TTL. Where a guard keeps the stock
(`LOCK_WORLD` is not `direct`) nothing is sold twice, if each thread has a connection of its own. Threads that share a pool
look like one client on the wire: how that goes is told."""

import json
import os
import threading
import time

import redis
from redis.exceptions import LockError, ResponseError

ITEMS = 100
WORKERS = 20
TTL_S = 0.15
WITHIN_S = 45

HOST, PORT = os.environ["LOCK_HOST"], int(os.environ["LOCK_PORT"])
GUARDED = os.environ["LOCK_WORLD"] != "direct"
STOCK = "stock:7"
LOCK = os.environ["LOCK_PREFIX"] + "sale:7"


def pause_s(worker, turn):
    spread = turn * 7 + worker * 3
    return (160 + spread % 40 if (turn + worker) % 4 == 0 else 4 + spread % 8) / 1000


class Shop:
    def __init__(self, client_of):
        self.client_of = client_of
        self.sold = self.refused = 0
        self.counting = threading.Lock()
        self.problems = []

    def run(self):
        manager = redis.Redis(host=HOST, port=PORT, single_connection_client=True)
        with manager.lock(LOCK, timeout=10):
            manager.set(STOCK, ITEMS)
        self.deadline = time.monotonic() + WITHIN_S
        workers = [threading.Thread(target=self.works, args=(worker,)) for worker in range(WORKERS)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if self.problems:
            raise self.problems[0]
        self.left = int(manager.get(STOCK))

    def works(self, worker):
        try:
            client, turn = self.client_of(), 0
            while time.monotonic() < self.deadline:
                turn += 1
                if self.sells_one(client, pause_s(worker, turn)):
                    return
        except Exception as problem:
            self.problems.append(problem)

    def sells_one(self, client, pause):
        """Whether the shop is empty."""
        lock = client.lock(LOCK, timeout=TTL_S, sleep=0.01, blocking_timeout=WITHIN_S)
        if not lock.acquire():
            return False
        stock = int(client.get(STOCK))
        if stock > 0:
            time.sleep(pause)
            self.writes(client, stock - 1)
        try:
            lock.release()
        except LockError:
            # It ran out, which the program does not mind.
            pass
        return stock == 0

    def writes(self, client, stock):
        try:
            client.set(STOCK, stock)
        except ResponseError as refusal:
            if not str(refusal).startswith("LOCKDENIED "):
                raise
            with self.counting:
                self.refused += 1
            return
        with self.counting:
            self.sold += 1

    def told(self):
        refused = f", {self.refused} writes refused" if self.refused else ""
        return f"{self.sold} sold of {ITEMS}, {max(0, self.sold - (ITEMS - self.left))} oversold, {self.left} left{refused}"


def own_connection():
    return redis.Redis(host=HOST, port=PORT, single_connection_client=True)


def check(name, client_of, is_exact):
    line = {"client": "redis-py Lock", "version": redis.__version__, "check": name, "result": "ok"}
    try:
        shop = Shop(client_of)
        shop.run()
        line["detail"] = shop.told()
        if GUARDED and is_exact:
            assert (shop.sold, shop.left) == (ITEMS, 0), shop.told()
        elif not GUARDED:
            # Otherwise the figures with the guard would mean nothing.
            assert shop.sold > ITEMS, shop.told()
        assert (shop.refused > 0) == GUARDED, shop.told()
    except Exception as problem:
        line |= {"result": "failed", "detail": f"{type(problem).__name__}: {problem}"[:400]}
    print(json.dumps(line), flush=True)


def main():
    check("a connection for each of 20 threads", own_connection, True)
    if not os.environ.get("LOCK_QUICK"):
        pool = redis.Redis(connection_pool=redis.ConnectionPool(host=HOST, port=PORT))
        check("a pool for all 20 threads", lambda: pool, False)


main()

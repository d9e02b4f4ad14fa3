"""WSGI middleware: refuses a write whose fencing token is older than one that has written the same path."""

import re
import sqlite3


class Fencing:
    def __init__(self, app, database):
        self.app, self.database = app, database
        with sqlite3.connect(database) as db:
            db.execute("CREATE TABLE IF NOT EXISTS fences (path TEXT PRIMARY KEY, fence INTEGER NOT NULL)")

    def __call__(self, environ, start_response):
        if environ["REQUEST_METHOD"] in ("GET", "HEAD", "OPTIONS"):
            return self.app(environ, start_response)
        fence = environ.get("HTTP_FENCING_TOKEN", "")
        if not re.fullmatch("[0-9]{1,16}", fence):
            return refuse(start_response, "428 Precondition Required", "a write needs a header Fencing-Token")
        db = sqlite3.connect(self.database, timeout=30, isolation_level=None)
        try:
            # One write at a time: no older one is under way any more when a newer one is let through.
            db.execute("BEGIN IMMEDIATE")
            changed = db.execute(
                "INSERT INTO fences VALUES (?, ?) ON CONFLICT (path) DO UPDATE"
                " SET fence = excluded.fence WHERE fences.fence <= excluded.fence",
                (environ["PATH_INFO"], int(fence)),
            )
            if changed.rowcount == 0:
                return refuse(start_response, "412 Precondition Failed", "a newer holder of the lock has written this")
            return list(self.app(environ, start_response))
        finally:
            if db.in_transaction:
                db.execute("COMMIT")
            db.close()


def refuse(start_response, status, why):
    start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
    return [f"{why}\n".encode()]

"""Which checks are wanted, and one check of a program that has no `Client`, told as a JSON line."""

import json
import os
import traceback
from importlib import metadata

# Those that are wanted; none: all.
CHECKS = os.environ.get("LOCK_CHECKS")


def is_wanted(name):
    return CHECKS is None or name in CHECKS.split(";")


def check(package, name, run, title=None):
    if not is_wanted(name):
        return
    said = {"client": title or package, "version": metadata.version(package), "check": name}
    try:
        run()
        print(json.dumps({**said, "result": "ok"}), flush=True)
    except Exception:
        detail = traceback.format_exc(limit=-1)
        print(json.dumps({**said, "result": "failed", "detail": detail}), flush=True)

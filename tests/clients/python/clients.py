"""Runs the clients that are named, each a module of this folder with a class `Client`, against the server
that the environment names, and prints a JSON line a check. Start at `checks.py`."""

import importlib
import logging
import os
import sys

import checks


def main(names):
    # The libraries write down every lock that they do not get.
    logging.disable(logging.WARNING)
    server = checks.Server(os.environ["LOCK_HOST"], int(os.environ["LOCK_PORT"]))
    for name in names:
        client = importlib.import_module(name).Client(server)
        checks.run(client, server, f"{os.environ['LOCK_PREFIX']}{name}:")
        client.close()


main(sys.argv[1:])

#!/bin/sh
# A shell job: every command is a client of its own, which is gone when it has its reply.
set -eu
locks() { redis-cli -p "$LOCK_PORT" "$@"; }
direct() { redis-cli -p "$WITNESS_PORT" "$@" >/dev/null; }

while :; do
    if [ "$(locks SET nightly:export "$$" NX EX 20)" != OK ]; then
        sleep 0.05
        continue
    fi
    direct HINCRBY grants "$NAME" 1
    [ "$(redis-cli -p "$WITNESS_PORT" SET witness:nightly "$$" NX PX 3000)" = OK ] || direct HINCRBY overlaps "$NAME" 1
    sleep 0.2
    direct DEL witness:nightly
    locks DEL nightly:export >/dev/null
done

#!/bin/sh
set -eu
cd "$(dirname "$0")"
clients=../../../target/clients/rust/debug/clients
if [ -n "${LOCK_QUICK:-}" ]; then
    exec "$clients" rslock
fi
exec "$clients" rslock redlock redis

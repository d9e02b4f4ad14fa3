#!/bin/sh
set -eu
cd "$(dirname "$0")"
clients=../../../target/clients/rust/debug/clients
cluster=
if [ -n "${LOCK_CLUSTER:-}" ]; then cluster=cluster; fi
if [ -n "${LOCK_QUICK:-}" ]; then
    exec "$clients" rslock $cluster
fi
exec "$clients" rslock redlock redis $cluster

#!/bin/sh
set -eu
cd "$(dirname "$0")"
home=$(cd ../../../target/clients/node && pwd)
export NODE_PATH="$home/node_modules"
found=sentinel
if [ -n "${LOCK_CLUSTER:-}" ]; then found=cluster; fi
if [ -n "${LOCK_QUICK:-}" ]; then
    exec node clients.js redlock-5 "ioredis-$found" "node-redis-$found"
fi
node clients.js redlock-4 redlock-5 redis-semaphore redis-lock ioredis-bare "ioredis-$found" node-redis-bare "node-redis-$found" \
    node-redis-watch
exec node jobs.js

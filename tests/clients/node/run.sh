#!/bin/sh
set -eu
cd "$(dirname "$0")"
home=$(cd ../../../target/clients/node && pwd)
export NODE_PATH="$home/node_modules"
if [ -n "${LOCK_QUICK:-}" ]; then
    exec node clients.js redlock-5 ioredis-sentinel node-redis-sentinel
fi
node clients.js redlock-4 redlock-5 redis-semaphore redis-lock ioredis-bare ioredis-sentinel node-redis-bare node-redis-sentinel \
    node-redis-watch
exec node jobs.js

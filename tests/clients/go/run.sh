#!/bin/sh
set -eu
cd "$(dirname "$0")"
if [ -n "${LOCK_QUICK:-}" ]; then
    exec ../../../target/clients/go/clients redislock redislock-sentinel
fi
exec ../../../target/clients/go/clients redislock redislock-resp2 redislock-sentinel redsync raw jobs

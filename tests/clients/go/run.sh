#!/bin/sh
set -eu
cd "$(dirname "$0")"
if [ -n "${LOCK_QUICK:-}" ]; then
    exec ../../../target/clients/go/clients redislock
fi
exec ../../../target/clients/go/clients redislock redislock-resp2 redsync raw

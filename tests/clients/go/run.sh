#!/bin/sh
set -eu
cd "$(dirname "$0")"
found=redislock-sentinel
if [ -n "${LOCK_CLUSTER:-}" ]; then found=redislock-cluster; fi
if [ -n "${LOCK_QUICK:-}" ]; then
    exec ../../../target/clients/go/clients redislock "$found"
fi
exec ../../../target/clients/go/clients redislock redislock-resp2 "$found" redsync raw jobs

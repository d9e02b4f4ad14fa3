#!/bin/sh
set -eu
cd "$(dirname "$0")"
home=../../../target/clients/java
if [ -n "${LOCK_QUICK:-}" ]; then set -- redisson-lock redisson-sentinel jedis-sentinel lettuce-sentinel lettuce-master-replica-sentinel \
    redisson-cluster jedis-cluster lettuce-cluster; fi
# The heap is small and the compiler modest because two of these may run beside a build.
run() { java -Xmx256m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "$@"; }
run "$home/classes:$home/lib/*" lockwarden.clients.Main "$@"
if [ -z "${LOCK_QUICK:-}" ]; then run "$home/quartz/classes:$home/quartz/lib/*" lockwarden.quartz.Main; fi

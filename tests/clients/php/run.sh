#!/bin/sh
set -eu
cd "$(dirname "$0")"
cluster=
if [ -n "${LOCK_CLUSTER:-}" ]; then cluster=PhpRedisCluster; fi
if [ -n "${LOCK_QUICK:-}" ]; then
    exec php -d display_errors=stderr clients.php PhpRedis $cluster
fi
exec php -d display_errors=stderr clients.php PhpRedis $cluster Laravel Symfony

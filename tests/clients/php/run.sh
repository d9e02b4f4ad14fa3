#!/bin/sh
set -eu
cd "$(dirname "$0")"
if [ -n "${LOCK_QUICK:-}" ]; then
    exec php -d display_errors=stderr clients.php PhpRedis
fi
exec php -d display_errors=stderr clients.php PhpRedis Laravel Symfony

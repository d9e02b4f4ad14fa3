#!/bin/sh
# Everything comes from Debian, so the versions are those of the release; the checks print them.
set -eu

complete() {
    command -v php >/dev/null && php -r '
        $classes = ["Redis", "Illuminate\Cache\PhpRedisLock", "Illuminate\Redis\Connections\PhpRedisConnection",
            "Symfony\Component\Lock\Store\RedisStore"];
        foreach (["Illuminate/Cache", "Illuminate/Redis", "Symfony/Component/Lock"] as $library) {
            @include_once "$library/autoload.php";
        }
        exit(function_exists("pcntl_fork") && array_filter($classes, "class_exists") === $classes ? 0 : 1);'
}

packages='php-cli php-redis php-illuminate-cache php-illuminate-redis php-symfony-lock'
if complete; then exit 0; fi
[ "$(id -u)" -eq 0 ] || { echo "missing: apt-get install $packages" >&2; exit 1; }
apt-get -q update >&2
# shellcheck disable=SC2086 # a list of words, on purpose
DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends $packages >&2
complete || { echo "still missing, though $packages are installed" >&2; exit 1; }

#!/bin/sh
# Four environments: aioredlock brings hiredis, which redis-py would use wherever it is installed, Celery
# much else, and arq wants an older redis-py.
set -eu
cd "$(dirname "$0")"
home=../../../target/clients/python

if ! python3 -c 'import ensurepip' 2>/dev/null; then
    [ "$(id -u)" -eq 0 ] || { echo 'missing: python3 with venv (apt-get install python3-venv)' >&2; exit 1; }
    apt-get -q update >&2
    apt-get -q install -y --no-install-recommends python3-venv >&2
fi

# environment ENVIRONMENT REQUIREMENTS
environment() {
    if cmp -s "$2" "$home/$1/installed.txt"; then return; fi
    rm -rf "${home:?}/$1"
    python3 -m venv "$home/$1"
    "$home/$1/bin/pip" install -q --no-deps -r "$2" >&2
    cp "$2" "$home/$1/installed.txt"
}

mkdir -p "$home"
environment usual requirements.txt
environment aioredlock requirements-aioredlock.txt
environment celery requirements-celery.txt
environment jobs requirements-jobs.txt

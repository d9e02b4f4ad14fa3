#!/bin/sh
# Installs what package-lock.json says into target/clients/node, and nothing where that was done already.
set -eu
cd "$(dirname "$0")"
home=../../../target/clients/node

complete() {
    command -v npm >/dev/null && node -e 'process.exit(parseInt(process.versions.node, 10) >= 20 ? 0 : 1)'
}

if ! complete; then
    [ "$(id -u)" -eq 0 ] || { echo 'missing: Node 20 or later, with npm (apt-get install nodejs npm)' >&2; exit 1; }
    apt-get -q update >&2
    apt-get -q install -y --no-install-recommends nodejs npm >&2
    complete || { echo 'the Node of this system is older than 20' >&2; exit 1; }
fi

if cmp -s package-lock.json "$home/installed.json"; then exit 0; fi
rm -rf "${home:?}/node_modules" "${home:?}/installed.json"
mkdir -p "$home"
cp package.json package-lock.json "$home"
# The lock file names versions and digests, not where they come from.
(cd "$home" && npm ci --ignore-scripts --no-audit --no-fund >&2)
cp package-lock.json "$home/installed.json"

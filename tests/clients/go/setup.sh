#!/bin/sh
# The modules and what is compiled of them go to Go's own caches; a second run compiles nothing.
set -eu
cd "$(dirname "$0")"
command -v go >/dev/null || {
    [ "$(id -u)" -eq 0 ] || { echo 'missing: Go (apt-get install golang-go)' >&2; exit 1; }
    apt-get -q update >&2
    apt-get -q install -y --no-install-recommends golang-go ca-certificates >&2
}
# Not every directory that this is built in is a git repository that Go may ask.
exec go build -buildvcs=false -mod=readonly -o ../../../target/clients/go/ . >&2

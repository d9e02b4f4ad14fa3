#!/bin/sh
# The whole old program: three kinds of processes, of which two run twice. They go on until this script ends.
#   run.sh HOST:PORT
set -eu
cd "$(dirname "$0")"
trap 'trap - TERM; kill 0' EXIT INT TERM
for part in orders orders invoices invoices nightly; do
    python3 -B "$part.py" "$1" &
done
wait

#!/usr/bin/env bash
# Runs every test once, in two processes at a time: those that mostly wait, many of them at once, beside all others. The
# arguments select the former, as filters of `cargo test`; the others are what these filters leave.
set -uo pipefail
cd "$(dirname "$0")/.."

cargo=(cargo test ${CI:+--locked} --workspace --no-fail-fast --)
said=$(mktemp)
# A group of its own, so that its tests end with it where this is stopped.
RUST_TEST_THREADS=$(($(nproc) * 4)) setsid "${cargo[@]}" "$@" >"$said" 2>&1 &
waiting=$!
trap 'kill -- "-$waiting" 2>/dev/null; rm -f "$said"' EXIT

failed=0
"${cargo[@]}" "${@/#/--skip=}" || failed=$?
wait "$waiting" || failed=$?
printf '\nThe tests that mostly wait:\n'
cat "$said"
exit "$failed"

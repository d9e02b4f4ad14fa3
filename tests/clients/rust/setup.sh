#!/bin/sh
# What is built is kept in the home; a second run builds nothing.
set -eu
cd "$(dirname "$0")"
exec cargo build -q --locked --target-dir ../../../target/clients/rust >&2

#!/bin/sh
set -eu
cd "$(dirname "$0")"
exec ../../../target/clients/go/clients shop

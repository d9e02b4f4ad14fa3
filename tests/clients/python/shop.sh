#!/bin/sh
set -eu
cd "$(dirname "$0")"
export PYTHONDONTWRITEBYTECODE=1
exec ../../../target/clients/python/usual/bin/python shop.py

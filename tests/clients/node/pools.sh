#!/bin/sh
set -eu
cd "$(dirname "$0")"
home=$(cd ../../../target/clients/node && pwd)
NODE_PATH="$home/node_modules" exec node pools.js

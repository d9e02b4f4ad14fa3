#!/bin/sh
set -eu
cd "$(dirname "$0")"
exec php -d display_errors=stderr shop.php

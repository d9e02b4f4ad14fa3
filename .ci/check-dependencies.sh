#!/bin/sh
# Holds the dependencies to deny.toml, by cargo-deny. What was found right is noted in .ci/dependencies.sha256, by everything that it
# depends on: where nothing of that has changed, cargo-deny, which takes three minutes to build, is not needed.
set -eu
cd "$(dirname "$0")/.."
noted=.ci/dependencies.sha256

# In an order that does not depend on the language of the machine.
digest=$(find Cargo.lock Cargo.toml deny.toml proxy policies tests -name 'Cargo.*' -o -name deny.toml | grep -v /target/ |
    LC_ALL=C sort | xargs cat .ci/check-dependencies.sh | sha256sum | cut -d ' ' -f 1)
if [ "$(cat "$noted" 2>/dev/null)" = "$digest" ]; then
    echo "dependencies: as they were when they were found right ($noted)"
    exit
fi
# The registry has its source only, so it is built once, and quickly rather than well: it runs for a second.
version=0.20.2
home=target/cargo-deny
if [ ! -e "$home/$version" ]; then
    echo "dependencies: cargo builds cargo-deny $version into $home, in two or three minutes"
    rm -rf "$home"
    CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=0 cargo install -q --locked --debug --version "$version" \
        --root "$home" --target-dir "$home/build" cargo-deny
    rm -rf "$home/build"
    touch "$home/$version"
fi
"$home/bin/cargo-deny" --locked check -D warnings licenses bans sources
echo "$digest" >"$noted"

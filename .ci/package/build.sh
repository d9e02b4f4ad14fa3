#!/bin/sh
# Builds the proxy as it is released, with the machine code of its policies in it, which an earlier link of the same has
# written: so a start compiles none. Where that code is up to date nothing is linked twice. Arguments go to cargo.
set -eu
cd "$(dirname "$0")/../.."

built=${CARGO_TARGET_DIR:-target}
mkdir -p "$built/dist"
code=$(cd "$built/dist" && pwd)/compiled-policies
test -e "$code" || : >"$code"
export LOCKWARDEN_COMPILED_POLICIES="$code"

build() { cargo build ${CI:+--locked} --profile dist -p lockwarden "$@"; }

build "$@"
"$built/dist/lockwarden" compile-policies "$code.new"
if ! cmp -s "$code.new" "$code"; then
    mv "$code.new" "$code"
    build "$@"
fi
rm -f "$code.new"
"$built/dist/lockwarden" version | grep 'machine code' || {
    echo "$0: the policies of the binary are not those that were compiled" >&2
    exit 1
}

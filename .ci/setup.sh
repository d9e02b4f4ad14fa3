#!/bin/sh
# Makes a machine that has rustup ready to build, run and test lockwarden. Looks first and installs
# only what is missing, so that a second run costs a few milliseconds. What it may not or cannot
# install it names, all of it at once, and ends with 1. Called by the Makefile and by .ci/run.
set -eu
cd "$(dirname "$0")/.."
PATH="${CARGO_HOME:-${HOME:-}/.cargo}/bin:$PATH"
export PATH

problems=''

say() { printf 'set-up: %s\n' "$*"; }

problem() {
    problems="${problems}set-up: $*
"
}

has() { command -v "$1" >/dev/null 2>&1; }

# Whether the programs are wanted, too, that only tests run: with `--tests`, and in CI.
tests=''
if [ "${1:-}" = --tests ] || [ -n "${CI:-}" ]; then tests=yes; fi

main() {
    set_up_system
    set_up_tests
    set_up_sdk
    set_up_axe
    set_up_kubernetes
    set_up_rust
    if [ -n "$problems" ]; then
        printf '%s' "$problems" >&2
        exit 1
    fi
}

# --- a C compiler (rustc links with it), a Redis server, make ---

set_up_system() {
    look_for_system_packages
    [ -n "$packages" ] || return 0
    if ! has apt-get; then
        problem "missing: $missing. This is not Debian or a relative of it, so install them with the package manager of this system (often packages called gcc, redis or valkey, make) and try again."
    elif [ "$(id -u)" -ne 0 ]; then
        problem "missing: $missing. Only root may install them: sudo apt-get update && sudo apt-get install --no-install-recommends$packages"
    else
        install_system_packages
    fi
}

# Fills `packages` (each with a space before it) for apt-get and `missing` for people.
look_for_system_packages() {
    packages=''
    missing=''
    has cc || need 'gcc libc6-dev' 'a C compiler (cc)'
    has redis-server || has valkey-server || need redis-server 'redis-server (or valkey-server)'
    has make || need make make
    # The board is looked at in a real browser; elsewhere those tests are skipped, and say so.
    [ -z "${CI:-}" ] || has chromium || need chromium 'chromium'
}

need() {
    packages="$packages $1"
    missing="${missing:+$missing, }$2"
}

install_system_packages() {
    say "missing: $missing; apt-get installs:$packages"
    DEBIAN_FRONTEND=noninteractive
    export DEBIAN_FRONTEND
    # A fresh machine may still be busy with its own first updates: wait for the lock.
    apt='apt-get -q -o DPkg::Lock::Timeout=300'
    # One broken source need not matter: the packages may come from another.
    $apt update || say 'apt-get update failed; trying with the package lists that are there'
    # shellcheck disable=SC2086 # a list of words, on purpose
    $apt install -y --no-install-recommends $packages ||
        say 'apt-get install failed; its words are above'
    look_for_system_packages
    [ -z "$packages" ] || problem "still missing: $missing"
}

# --- programs that only tests run: a test whose program is not there says so, and fails in CI ---

set_up_tests() {
    [ -n "$tests" ] || return 0
    packages=''
    missing=''
    { has prometheus && has promtool; } || need prometheus Prometheus
    { has alertmanager || has prometheus-alertmanager; } || need prometheus-alertmanager Alertmanager
    has mmdebstrap || need mmdebstrap 'mmdebstrap'
    python3 -c 'import ensurepip' 2>/dev/null || need python3-venv 'Python with venv'
    has npm || need npm npm
    has curl || need curl curl
    has git || need git git
    has docker-registry || need docker-registry "Docker's registry"
    has minisign || need minisign minisign
    { has valgrind && has vgdb; } || need valgrind valgrind
    has redis-cli || need redis-tools redis-cli
    has ip || need iproute2 ip
    { has clang && has wasm-ld; } || need 'clang lld' 'clang and wasm-ld'
    { has psql && { has initdb || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; }; } || need postgresql PostgreSQL
    has go || need 'golang-go ca-certificates' Go
    php -r "exit(extension_loaded('redis') ? 0 : 1);" 2>/dev/null || need 'php-cli php-redis' phpredis
    [ -n "$packages" ] || return 0
    if ! has apt-get || [ "$(id -u)" -ne 0 ]; then
        say "not installed: $missing. The tests that run them will be skipped."
        return 0
    fi
    say "tests run $missing; apt-get installs:$packages"
    # The programs are wanted, not the services that come with them.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        trap 'rm -f "$policy"' EXIT
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod +x "$policy"
    fi
    DEBIAN_FRONTEND=noninteractive
    export DEBIAN_FRONTEND
    apt='apt-get -q -o DPkg::Lock::Timeout=300'
    $apt update || say 'apt-get update failed; trying with the package lists that are there'
    # shellcheck disable=SC2086 # a list of words, on purpose
    $apt install -y --no-install-recommends $packages ||
        say 'apt-get install failed; its words are above. The tests that run these programs will be skipped.'
}

# --- Grafana's SDK: a test compares the dashboard with what grafana/generate.py writes ---

set_up_sdk() {
    home=target/grafana
    if [ -z "$tests" ] || cmp -s grafana/requirements.txt "$home/installed.txt"; then return 0; fi
    say "pip installs Grafana's SDK for dashboards into $home"
    python3 -m venv --clear "$home" &&
        "$home/bin/python" -m pip install -q --disable-pip-version-check --no-deps -r grafana/requirements.txt &&
        cp grafana/requirements.txt "$home/installed.txt" ||
        { rm -rf "$home"; say "not installed: Grafana's SDK. The test that writes the dashboard will be skipped."; }
}

# --- axe-core: a test has it look for what keeps people from using the board ---

axe_version=4.14.1

set_up_axe() {
    home=target/axe
    if [ -z "$tests" ] || [ -e "$home/$axe_version" ]; then return 0; fi
    has npm || { say "not installed: axe-core, for want of npm. The test of the board that runs it will be skipped."; return 0; }
    say "npm installs axe-core $axe_version into $home"
    rm -rf "$home" && mkdir -p "$home" &&
        npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$home" "axe-core@$axe_version" >/dev/null &&
        touch "$home/$axe_version" ||
        { rm -rf "$home"; say "not installed: axe-core. The test of the board that runs it will be skipped."; }
}

# --- Kubernetes' schemas and kustomize: a test compares the example with them and starts the proxy as it says ---

set_up_kubernetes() {
    home=target/kubernetes
    if [ -z "$tests" ] || cat tests/kubernetes/requirements.txt tests/kubernetes/go.sum | cmp -s - "$home/installed.txt"; then return 0; fi
    say "pip installs Kubernetes' schemas into $home, and Go builds kustomize there"
    python3 -m venv --clear "$home" &&
        "$home/bin/python" -m pip install -q --disable-pip-version-check --no-deps -r tests/kubernetes/requirements.txt &&
        (cd tests/kubernetes && timeout 400 go build -buildvcs=false -mod=readonly -trimpath -o "../../$home/bin/kustomize" sigs.k8s.io/kustomize/kustomize/v5) &&
        cat tests/kubernetes/requirements.txt tests/kubernetes/go.sum >"$home/installed.txt" ||
        { rm -rf "$home"; say "not installed: Kubernetes' schemas and kustomize. The tests of the example for Kubernetes will be skipped."; }
}

# --- the Rust toolchain that rust-toolchain.toml names, with its WebAssembly target ---

set_up_rust() {
    if ! has cargo && ! has rustup; then
        problem 'missing: Rust. Install rustup (https://rustup.rs) and try again.'
        return 0
    fi
    ! rust_is_ready || return 0
    if ! has rustup; then
        problem "$wrong. Install it from where this Rust came from, or use rustup (https://rustup.rs)."
        return 0
    fi
    channel=$(toolchain_file channel)
    say "$wrong: rustup installs Rust $channel with $target"
    # With every argument spelled out, for before 1.28 rustup did not read them from the file here.
    rustup toolchain install "$channel" --no-self-update \
        --profile "$(toolchain_file profile)" \
        --component "$(toolchain_file components)" \
        --target "$target" ||
        say 'rustup failed; its words are above'
    ! rust_is_ready || return 0
    # What rustup has noted as installed it does not look at again.
    say "$wrong: rustup installs $target anew"
    { rustup target remove --toolchain "$channel" "$target" &&
        rustup target add --toolchain "$channel" "$target"; } ||
        say 'rustup failed; its words are above'
    rust_is_ready ||
        problem "$wrong. To install this Rust anew: rustup toolchain uninstall $channel && make setup"
}

# Whether the toolchain and every file of its WebAssembly target is there; `wrong` says what is not. Never
# installs anything by itself: without RUSTUP_AUTO_INSTALL=0 some versions of rustup would, and silently here.
rust_is_ready() {
    target=$(toolchain_file targets)
    # The last line of what rustc says is the path, or what is wrong with rustc itself.
    library=$(RUSTUP_AUTO_INSTALL=0 rustc --print target-libdir --target "$target" 2>&1) || {
        wrong="rustc does not run ($(printf '%s\n' "$library" | head -n 1))"
        return 1
    }
    library=$(printf '%s\n' "$library" | tail -n 1)
    if ! [ -d "$library" ]; then
        wrong="this Rust has no standard library for $target"
        return 1
    fi
    target_is_whole || {
        wrong="the standard library for $target is damaged: $lost is missing or empty"
        return 1
    }
}

# rustup notes which files it has put there; without its note those that every build needs are looked for.
target_is_whole() {
    root=$library/../../../..
    manifest=$library/../../manifest-rust-std-$target
    if [ -f "$manifest" ]; then
        while IFS=: read -r kind file; do
            lost=$root/$file
            [ "$kind" != file ] || [ -s "$lost" ] || return 1
        done <"$manifest"
        return 0
    fi
    for crate in core alloc std; do
        lost=$library/lib$crate-*.rlib
        set -- "$library/lib$crate"-*.rlib
        [ -s "$1" ] || return 1
    done
}

# One value of rust-toolchain.toml; a list comes with commas between its words.
toolchain_file() { sed -n "s/^$1 *= *//p" rust-toolchain.toml | tr -d '[]" '; }

main

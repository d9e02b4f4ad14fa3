#!/bin/sh
# Fetches the pinned libraries and compiles the program into target/clients/java. What was built from these
# files already is not built again.
set -eu
cd "$(dirname "$0")"
home=../../../target/clients/java

if ! command -v mvn >/dev/null || ! command -v javac >/dev/null; then
    [ "$(id -u)" -eq 0 ] || { echo 'missing: a JDK 17 and Maven (apt-get install openjdk-17-jdk-headless maven)' >&2; exit 1; }
    apt-get -q update >&2
    apt-get -q install -y --no-install-recommends openjdk-17-jdk-headless maven >&2
fi

built_from=$(cat setup.sh pom.xml resources/* src/lockwarden/clients/* quartz/pom.xml quartz/src/lockwarden/quartz/* | sha256sum)
if [ "$(cat "$home/built-from.txt" 2>/dev/null)" = "$built_from" ]; then exit 0; fi
rm -rf "${home:?}/classes" "${home:?}/lib" "${home:?}/quartz" "${home:?}/built-from.txt"
mvn -q -B -ntp -Dstyle.color=never compile >&2
mvn -q -B -ntp -Dstyle.color=never -f quartz/pom.xml compile >&2
printf '%s\n' "$built_from" >"$home/built-from.txt"

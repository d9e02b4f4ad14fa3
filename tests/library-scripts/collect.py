"""Writes `proxy/lock/src/library_scripts.tsv`: the digests of the scripts in every released version of the libraries of
`docs/clients.md`, each with the section of `library_scripts.lua` that does the same. Needs the package managers of these languages and a
`redis-server`; no text of a library is kept in the tree.

    tests/library-scripts/collect.py --registry MAVEN_REPOSITORY --symfony CLONE --laravel CLONE [LIBRARY…]

Libraries that are not named keep their lines. What no section fits is said, to be looked at.
"""

import argparse
import hashlib
import os
import re
import sys

import behaviour
import packages

HERE = os.path.dirname(os.path.abspath(__file__))
TABLE = os.path.join(HERE, "../../proxy/lock/src/library_scripts.tsv")
HOME = os.path.join(HERE, "../../target/library-scripts")

# Of sections without a text: what a script has to say, and what it must not. The first that fits counts.
BY_WORDS = [
    ("redisson-unlock-other", r"(?=.*'hincrby')(?=.*('publish'|'del'|ARGV\[\d\], KEYS\[2\]))", r"^$"),
    ("redisson-take-other", r"(?=.*'hincrby')(?=.*'pexpire')", r"^$"),
    ("redisson-renew-other", r"(?=.*('hexists'|'hget'))(?=.*'pexpire')", r"'del'|'hset'|'hdel'|'publish'"),
]


SECTIONS = behaviour.sections()


def libraries(options):
    """Of each library how its texts are had."""
    python = ["redis", "pottery", "redlock-py", "python-redis-lock", "aioredlock", "celery-redbeat"]
    for package in python:
        yield f"PyPI {package}", lambda package=package: packages.of_python(package, HOME)
    for package in ["redlock", "redis-semaphore", "ioredis-lock"]:
        yield f"npm {package}", lambda package=package: packages.of_node(package, HOME)
    for module in ["github.com/bsm/redislock", "github.com/go-redsync/redsync/v4"]:
        yield f"Go {module}", lambda module=module: packages.of_go(module, HOME)
    # The crate is not the npm package.
    for package, name in [("rslock", "rslock"), ("redlock", "redlock.rs")]:
        yield f"crates.io {name}", lambda package=package: packages.of_rust(package, HOME)
    for coordinates, classes in [
        ("org.springframework.integration:spring-integration-redis", "Lock"),
        ("net.javacrumbs.shedlock:shedlock-support-redis", "."),
        ("org.redisson:redisson", "org/redisson/(Redisson[A-Za-z]*(Lock|Semaphore)|renewal/)"),
    ]:
        yield (
            f"Maven {coordinates.split(':')[1]}",
            lambda coordinates=coordinates, classes=classes: packages.of_java(coordinates, HOME, options.registry, classes),
        )
    yield "PHP symfony/lock", lambda: packages.of_php(options.symfony, ["Store"])
    yield "PHP laravel/framework", lambda: packages.of_php(options.laravel, ["src/Illuminate/Cache"])


def section_of(server, text, all_sections):
    plain = " ".join(re.sub(r"--[^\n]*", "", text).split())
    for section in all_sections:
        if section.text and behaviour.does_the_same(server, section, text):
            return section.name
    for name, has, lacks in BY_WORDS:
        if re.search(has, plain) and not re.search(lacks, plain):
            return name
    return "no-lock"


def lines(server, library, versions, known):
    """The lines of one library."""
    digests = {}
    for version, texts in versions:
        for text in texts:
            digests.setdefault(text, []).append(version.removeprefix("v"))
    for text, those in digests.items():
        # Spaces and comments apart, one text is looked at once.
        plain = " ".join(re.sub(r"--[^\n]*", "", text).split())
        if plain not in known:
            known[plain] = section_of(server, text, SECTIONS)
            if known[plain] == "no-lock":
                print(f"{library}: no section fits: {plain[:300]}", flush=True)
        those.sort(key=lambda one: [int(part) if part.isdigit() else 0 for part in re.split(r"[.\-+]", one)])
        span = those[0] if len(those) == 1 else f"{those[0]}..{those[-1]}"
        yield f"{hashlib.sha1(text.encode()).hexdigest()}\t{known[plain]}\t{library.split()[1]}\t{span}"


def write(table):
    """One line a digest: of libraries that have the same text the first."""
    unique = {line.split("\t")[0]: line for line in reversed(table)}
    with open(TABLE, "w", encoding="utf-8") as file:
        ordered = sorted(unique.values(), key=lambda line: (line.split("\t")[2], line.split("\t")[1], line))
        file.write("".join(f"{line}\n" for line in ordered))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--registry")
    parser.add_argument("--symfony")
    parser.add_argument("--laravel")
    parser.add_argument("only", nargs="*")
    options = parser.parse_args()
    os.makedirs(HOME, exist_ok=True)
    with open(TABLE, encoding="utf-8") as file:
        table = [line.rstrip("\n") for line in file if line.strip()]
    server, known = behaviour.Server(), {}
    try:
        for library, versions in libraries(options):
            if options.only and library.split()[1] not in options.only:
                continue
            found = versions()
            if not any(texts for _, texts in found):
                print(f"{library}: has no scripts")
                continue
            name = library.split()[1]
            table = [line for line in table if line.split("\t")[2] != name or line.split("\t")[1] == "job"]
            table += lines(server, library, found, known)
            print(f"{library}: {len(found)} versions", flush=True)
    finally:
        server.stop()
    write(table)


if __name__ == "__main__":
    sys.exit(main())

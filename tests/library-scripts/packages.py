"""The scripts in every released version of a package, by the package manager of its language.

Each function returns pairs of a version and its texts. Packages are kept in a folder, so a second run downloads only what is new.
"""

import ast
import glob
import io
import json
import os
import re
import struct
import subprocess
import tarfile
import tempfile
import textwrap
import zipfile
from concurrent.futures import ThreadPoolExecutor
from xml.etree import ElementTree

CALL = re.compile(r"""(?:redis|server)\s*\.\s*p?call\s*\(\s*['\"]|rcall\s*\(""")
AT_ONCE = 4


def run(words, **more):
    return subprocess.run(words, capture_output=True, text=True, check=True, **more).stdout


def is_script(text):
    """Whether it may be one: what stands between two strings has no whole calls."""
    return CALL.search(text) is not None and "KEYS" in text and text.count("(") == text.count(")")


def spellings(text):
    """A library may trim what stands in its source, or take its indentation away."""
    return {text, text.strip(), textwrap.dedent(text), textwrap.dedent(text).strip()}


def files_of(archive):
    """The files of a wheel, a jar, a tar ball or a folder of the Go cache."""
    if os.path.isdir(archive):
        for folder, _, names in os.walk(archive):
            for name in names:
                path = os.path.join(folder, name)
                with open(path, "rb") as file:
                    yield os.path.relpath(path, archive), file.read()
    elif zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as whole:
            for name in whole.namelist():
                yield name, whole.read(name)
    else:
        with tarfile.open(archive) as whole:
            for member in whole:
                if member.isfile():
                    yield member.name, whole.extractfile(member).read()


def each_version(versions, fetch, texts):
    """Fetches and reads versions, some at once. One that cannot be had is left out, and said."""

    def one(version):
        try:
            return version, sorted(set(texts(fetch(version))))
        except (subprocess.CalledProcessError, FileNotFoundError) as error:
            said = getattr(error, "stderr", None) or str(error)
            print(f"  {version}: not to be had: {said.strip().splitlines()[-1:]}", flush=True)
            return version, []

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(one, versions))


# Python


def of_python(package, home):
    listed = run(["pip", "index", "versions", "--pre", package])
    versions = re.search(r"Available versions: (.*)", listed).group(1).split(", ")

    def fetch(version):
        folder = f"{home}/{package}-{version}"
        if not os.path.isdir(folder) or not os.listdir(folder):
            words = ["pip", "download", "-q", "--no-deps", "-d", folder, f"{package}=={version}"]
            try:
                run([*words, "--only-binary", ":all:", "--python-version", "3.11"])
            except subprocess.CalledProcessError:
                run(words)
        return f"{folder}/{os.listdir(folder)[0]}"

    return each_version(versions, fetch, python_texts)


def python_texts(archive):
    for name, content in files_of(archive):
        if name.endswith(".lua"):
            yield from spellings(content.decode())
        if not name.endswith(".py") or b"KEYS" not in content or "/test" in name:
            continue
        try:
            tree = ast.parse(content)
        except SyntaxError:
            # Python 2: its strings are those of Python 3.
            for literal in re.findall(rb'("""|\'\'\')(.*?)\1', content, re.S):
                if is_script(text := literal[1].decode()):
                    yield from spellings(text)
            continue
        for node in ast.walk(tree):
            value = getattr(node, "value", None) if isinstance(node, ast.Constant) else None
            value = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
            if isinstance(value, str) and is_script(value):
                yield from spellings(value)


# Node

# Template literals without a hole, and plain strings joined by `+`.
LITERALS = re.compile(r"`((?:[^`\\$]|\\.|\$(?!\{))*)`|((?:(?:'(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\")\s*\+?\s*)+)", re.S)


def of_node(package, home):
    versions = json.loads(run(["npm", "view", package, "versions", "--json"]))

    def fetch(version):
        folder = f"{home}/{package}-{version}"
        os.makedirs(folder, exist_ok=True)
        if not os.listdir(folder):
            run(["npm", "pack", "--silent", "--pack-destination", folder, f"{package}@{version}"])
        return f"{folder}/{os.listdir(folder)[0]}"

    return each_version([versions] if isinstance(versions, str) else versions, fetch, node_texts)


def node_texts(archive):
    for name, content in files_of(archive):
        if name.endswith(".lua"):
            yield from spellings(content.decode())
        if not re.search(r"\.[cm]?[jt]s$", name) or b"KEYS" not in content:
            continue
        source = content.decode("utf-8", "replace")
        for found in LITERALS.finditer(source):
            literal = found.group(0).rstrip(" \t\n+")
            if is_script(literal):
                text = run(["node", "-e", "process.stdout.write(eval(require('fs').readFileSync(0,'utf8')))"], input=literal)
                yield from spellings(text)


# Go


def of_go(module, home):
    versions = run(["go", "list", "-m", "-versions", module], cwd="/").split()[1:]

    def fetch(version):
        said = run(["go", "mod", "download", "-json", f"{module}@{version}"], cwd="/")
        return json.loads(said)["Dir"]

    return each_version(versions, fetch, go_texts)


def go_texts(folder):
    for name, content in files_of(folder):
        if name.endswith(".lua"):
            yield from spellings(content.decode())
        if name.endswith(".go") and b"KEYS" in content and not name.endswith("_test.go"):
            for literal in re.findall(r"`([^`]*)`", content.decode()):
                if is_script(literal):
                    yield from spellings(literal)


# Rust


def of_rust(package, home):
    """Fetched as the dependency of an empty program. What Cargo keeps of the index then names all versions."""
    listed = run(["cargo", "info", "-q", package], cwd="/")
    newest = re.search(r"^version: (\S+)", listed, re.M).group(1)
    rust_source(package, newest, home)
    return each_version(rust_versions(package), lambda version: rust_source(package, version, home), rust_texts)


def rust_versions(package):
    cargo_home = os.environ.get("CARGO_HOME", os.path.expanduser("~/.cargo"))
    versions = set()
    for kept in glob.glob(f"{cargo_home}/registry/index/*/.cache/{package[:2]}/{package[2:4]}/{package}"):
        with open(kept, "rb") as file:
            entries = re.findall(rb"\0(\{[^\0]*\})", file.read())
        versions |= {entry["vers"] for entry in map(json.loads, entries) if not entry["yanked"]}
    return sorted(versions)


def rust_source(package, version, home):
    folder = f"{home}/{package}-{version}"
    os.makedirs(f"{folder}/src", exist_ok=True)
    with open(f"{folder}/Cargo.toml", "w") as file:
        file.write(f'[package]\nname = "empty"\nversion = "0.0.0"\n[dependencies]\n{package} = "={version}"\n[workspace]\n')
    with open(f"{folder}/src/lib.rs", "w"):
        pass
    if not os.path.isdir(f"{folder}/vendor"):
        run(["cargo", "vendor", "-q"], cwd=folder)
    return f"{folder}/vendor/{package}"


def rust_texts(folder):
    for name, content in files_of(folder):
        if not name.endswith(".rs") or b"KEYS" not in content:
            continue
        source = content.decode()
        for literal in re.findall(r'r#"(.*?)"#', source, re.S):
            if is_script(literal):
                yield from spellings(literal)
        for literal in re.findall(r'(?<!r#)"((?:[^"\\]|\\.)*)"', source, re.S):
            if is_script(literal):
                text = re.sub(r"\\\n\s*", "", literal)
                text = text.replace('\\"', '"').replace("\\n", "\n").replace("\\t", "\t")
                yield from spellings(text)


# Java


def of_java(coordinates, home, registry, classes):
    """`registry` is the Maven repository as Maven itself is set up to use it; `classes` says which are read."""
    group, artifact = coordinates.split(":")
    path = f"{group.replace('.', '/')}/{artifact}"
    listed = run(["curl", "-sS", "--fail", "--max-time", "60", f"{registry}/{path}/maven-metadata.xml"])
    versions = [one.text for one in ElementTree.fromstring(listed).iter("version")]
    # The newest first: a run that is broken off has those.
    wanted = [one for one in reversed(versions) if not os.path.exists(f"{home}/{artifact}-{one}.jar")]
    # One run of Maven fetches many; one version that is not there does not spoil the others.
    for at in range(0, len(wanted), 20):
        copy_jars(group, artifact, wanted[at : at + 20], home)

    def fetch(version):
        return f"{home}/{artifact}-{version}.jar"

    return each_version(versions, fetch, lambda jar: java_texts(jar, classes))


def copy_jars(group, artifact, versions, home):
    items = "".join(
        f"<artifactItem><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{one}</version></artifactItem>"
        for one in versions
    )
    folder = tempfile.mkdtemp()
    with open(f"{folder}/pom.xml", "w") as file:
        file.write(
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>a</groupId>'
            "<artifactId>a</artifactId><version>1</version><build><plugins><plugin><groupId>org.apache.maven.plugins</groupId>"
            "<artifactId>maven-dependency-plugin</artifactId><version>3.6.1</version><configuration>"
            f"<outputDirectory>{home}</outputDirectory><artifactItems>{items}</artifactItems>"
            "</configuration></plugin></plugins></build></project>"
        )
    said = subprocess.run(["mvn", "-q", "-B", "-ntp", "dependency:copy"], cwd=folder, capture_output=True, text=True)
    if said.returncode != 0 and len(versions) > 1:
        for one in versions:
            copy_jars(group, artifact, [one], home)


def java_texts(archive, classes):
    for name, content in files_of(archive):
        if name.endswith(".class") and re.search(classes, name) and b"KEYS" in content:
            for text in constants(content):
                if is_script(text):
                    # `makeConcatWithConstants` marks what it puts in by \1.
                    yield from spellings(text)


def constants(content):
    """The strings of a class file."""
    at, count, number = 10, struct.unpack(">H", content[8:10])[0], 1
    while number < count:
        tag = content[at]
        if tag == 1:
            length = struct.unpack(">H", content[at + 1 : at + 3])[0]
            yield content[at + 3 : at + 3 + length].decode("utf-8", "replace")
            at += 3 + length
        else:
            at += {3: 5, 4: 5, 5: 9, 6: 9, 7: 3, 8: 3, 9: 5, 10: 5, 11: 5, 12: 5, 15: 4, 16: 3, 17: 5, 18: 5, 19: 3, 20: 3}[tag]
            number += tag in (5, 6)
        number += 1


# PHP


def of_php(repository, folders):
    """PHP packages are tags of a repository: `repository` is a clone of it."""
    tags = run(["git", "-C", repository, "tag", "-l", "v*"]).split()
    known = {}

    def texts(tag):
        for line in run(["git", "-C", repository, "ls-tree", "-r", tag, *folders]).splitlines():
            _, _, blob, name = line.split(None, 3)
            if name.endswith(".php") and blob not in known:
                known[blob] = list(php_texts(run(["git", "-C", repository, "cat-file", "blob", blob])))
            yield from known.get(blob, [])

    return [(tag.removeprefix("v"), found) for tag, found in each_version(tags, lambda tag: tag, texts)]


def php_texts(source):
    if "KEYS" not in source:
        return
    for opened, body, indentation in re.findall(r"<<<['\"]?([A-Z]+)['\"]?\n(.*?)\n([ \t]*)\1\b", source, re.S):
        del opened
        lines = [line.removeprefix(indentation) for line in body.split("\n")]
        if is_script("\n".join(lines)):
            yield from spellings("\n".join(lines))
    # A text in pieces: `'…'.$this->getNowCode().'…'`, where the function returns one of its strings.
    function = re.search(r"function getNowCode\(.*?\n    \}\n", source, re.S)
    pieces = re.findall(r"return '(.*?)';", function.group(0), re.S) if function else []
    sources = [re.sub(r"'\s*\.\s*\$this->getNowCode\(\)\s*\.\s*'", lambda _: piece, source) for piece in pieces] or [source]
    for whole in sources:
        for literal in re.findall(r"'((?:[^'\\]|\\.)*)'", whole, re.S):
            if is_script(literal):
                yield from spellings(literal.replace("\\'", "'"))
        for literal in re.findall(r'"((?:[^"\\$]|\\.)*)"', whole, re.S):
            if is_script(literal):
                yield from spellings(literal.replace('\\"', '"'))

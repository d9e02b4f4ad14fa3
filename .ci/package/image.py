"""Makes an OCI image without a daemon: image.py STAGE VERSION FILE.

The image has the files of STAGE, the libraries that the binary is linked with, the certificates of this machine, and a
user without rights. FILE is an archive of an OCI image layout, as `podman load`, `skopeo` and `docker load` take it.
The same files make the same image, byte for byte.
"""

import gzip
import hashlib
import io
import json
import platform
import subprocess
import sys
import tarfile
from pathlib import Path

BINARY = "usr/local/bin/lockwarden"
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
USER = 65532


def libraries(binary):
    """The files that the dynamic linker loads, and itself."""
    said = subprocess.run(["ldd", str(binary)], check=True, capture_output=True, text=True).stdout
    for line in said.splitlines():
        words = [word for word in line.split() if word.startswith("/")]
        if words:
            yield Path(words[0])


def entries(stage):
    """Every file of the image: where it stands, its mode and its bytes."""
    for path in sorted(stage.rglob("*")):
        if path.is_file():
            yield str(path.relative_to(stage)), path.stat().st_mode & 0o777, path.read_bytes()
    for path in sorted(set(libraries(stage / BINARY))):
        yield str(path).lstrip("/"), 0o755, path.read_bytes()
    if Path(CERTIFICATES).exists():
        yield CERTIFICATES.lstrip("/"), 0o644, Path(CERTIFICATES).read_bytes()
    yield "etc/passwd", 0o644, b"lockwarden:x:%d:%d::/nonexistent:/sbin/nologin\n" % (USER, USER)
    yield "etc/group", 0o644, b"lockwarden:x:%d:\n" % USER


def archive(files):
    """A tar of these files and their directories, without any time or name of this machine."""
    made, written = io.BytesIO(), set()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, mode, content in files:
            for parent in reversed(Path(name).parents[:-1]):
                if str(parent) not in written:
                    written.add(str(parent))
                    entry = tarfile.TarInfo(str(parent))
                    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                    tar.addfile(entry)
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return made.getvalue()


def main(stage, version, file):
    layer = archive(entries(Path(stage)))
    packed = gzip.compress(layer, compresslevel=6, mtime=0)
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    blobs = {}

    def blob(content, kind):
        digest = "sha256:" + hashlib.sha256(content).hexdigest()
        blobs[digest] = content
        return {"mediaType": kind, "digest": digest, "size": len(content)}

    config = {
        "architecture": architecture,
        "os": "linux",
        "config": {
            "User": str(USER),
            "ExposedPorts": {"6380/tcp": {}, "9181/tcp": {}},
            "Entrypoint": ["/" + BINARY],
            "Cmd": ["run", "--config", "/etc/lockwarden/lockwarden.toml"],
            "StopSignal": "SIGTERM",
            "Labels": {
                "org.opencontainers.image.title": "lockwarden",
                "org.opencontainers.image.version": version,
                "org.opencontainers.image.licenses": "Apache-2.0",
            },
        },
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]},
    }
    kind = "application/vnd.oci.image"
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{kind}.manifest.v1+json",
        "config": blob(json.dumps(config, sort_keys=True).encode(), f"{kind}.config.v1+json"),
        "layers": [blob(packed, f"{kind}.layer.v1.tar+gzip")],
    }
    told = blob(json.dumps(manifest, sort_keys=True).encode(), f"{kind}.manifest.v1+json")
    told["annotations"] = {"org.opencontainers.image.ref.name": version}
    index = {"schemaVersion": 2, "mediaType": f"{kind}.index.v1+json", "manifests": [told]}
    files = [("oci-layout", b'{"imageLayoutVersion": "1.0.0"}'), ("index.json", json.dumps(index).encode())]
    files += [("blobs/" + digest.replace(":", "/"), content) for digest, content in sorted(blobs.items())]
    Path(file).write_bytes(archive((name, 0o644, content) for name, content in files))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Compares manifests with Kubernetes' own JSON schemas: YAML on standard input, versions of Kubernetes as arguments.
Prints the manifests as JSON; what is wrong goes to standard error, and the end is 1. Unknown fields are wrong."""

import json
import sys

import kubernetes_validate
import yaml

manifests = [one for one in yaml.safe_load_all(sys.stdin) if one]
wrong = []
for manifest in manifests:
    for version in sys.argv[1:]:
        try:
            kubernetes_validate.validate(manifest, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            path = ".".join(str(part) for part in error.path)
            wrong.append(f"{manifest['kind']} {manifest['metadata']['name']}, Kubernetes {version}: {path}: {error.message}")
        except kubernetes_validate.SchemaNotFoundError as error:
            wrong.append(error.message)
print("\n".join(wrong), file=sys.stderr)
json.dump(manifests, sys.stdout)
sys.exit(1 if wrong else 0)

//go:build tools

// Names the program, so that `go mod tidy` keeps it.
package tools

import _ "sigs.k8s.io/kustomize/kustomize/v5"

// Package manifests carries what virtkit installs on a cluster, as YAML: the custom resource
// definitions (crds, generated) and everything else (base). `virtctl install` applies these very
// files, and each of the two directories is a kustomization for those who prefer
// `kubectl apply -k`.
package manifests

import "embed"

// FS holds crds/*.yaml and base/*.yaml, each with a kustomization.yaml that lists its files.
//
//go:embed crds/*.yaml base/*.yaml
var FS embed.FS

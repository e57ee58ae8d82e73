// Package manifests carries what virtkit installs on a cluster, as YAML: the custom resource
// definitions (crds, generated), everything that virtkit needs (base), and what the Prometheus operator and Grafana
// take (monitoring). `virtctl install` applies these very files, and each of the directories is a kustomization for
// those who prefer `kubectl apply -k`.
package manifests

import "embed"

// FS holds crds, base and monitoring, each with a kustomization.yaml that lists its files.
//
//go:embed crds/*.yaml base/*.yaml monitoring/*.yaml monitoring/dashboard.json
var FS embed.FS

// Package virtctl is the module by which KubeVirt's own virtctl is built, for tests/e2e to run it against this server.
// It has no code: that program pins older Kubernetes libraries, which are those of tests/compat as far as possible.
package virtctl

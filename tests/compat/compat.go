// Package compat proves that virtkit serves KubeVirt's own Go client: a program that uses nothing but
// kubevirt.io/client-go makes, watches, starts and stops a VM and opens its console. It is a module of its own because
// that client pins older Kubernetes libraries. The test runs against the cluster of the current kubeconfig context (or
// VIRTKIT_COMPAT_KUBECONFIG); tests/e2e runs it against its own instance.
package compat

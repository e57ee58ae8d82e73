// Package action holds what the packages below it share: the errors by which a caller, the command line or the
// dashboard, distinguishes failures, and the version of their reports. The packages do virtctl's work with no terminal:
// create builds a VirtualMachine, lifecycle starts and stops, wait waits, list makes rows, console moves bytes.
package action

import (
	"errors"
	"fmt"
)

var (
	// ErrTimeout is a wait that reached its time limit.
	ErrTimeout = errors.New("timed out")
	// ErrNotFound is an object that does not exist where no API error says so.
	ErrNotFound = errors.New("not found")
	// ErrLost is a connection to a guest that ended before what ran over it did; how that ended nobody knows.
	ErrLost = errors.New("the connection was lost")
	// ErrNotInstalled is a cluster that does not know KubeVirt's resources.
	ErrNotInstalled = errors.New("virtkit is not installed in this cluster")
)

// ReportVersion is the apiVersion of every report: what virtctl prints with -o where there is no object of the cluster
// to print. Each report is a Go type of the action that makes it; docs/output.md is generated from them. Its fields
// are a contract: they may be added, never renamed or removed, within one version.
const ReportVersion = "cli.virtkit.io/v1"

// Resources of machines as the server names them.
const (
	ResourceVMs  = "virtualmachines.kubevirt.io"
	ResourceVMIs = "virtualmachineinstances.kubevirt.io"
)

// NotFound returns an ErrNotFound about an object of a resource: the API server's sentence, and the namespace in which
// the object was looked for. virtctl says only in this way that something does not exist; package client gives the
// server's own errors the same form. The resource has its group, such as ResourceVMs; an empty namespace says nothing
// of where.
func NotFound(resource, namespace, name string) error {
	if namespace == "" {
		return fmt.Errorf("%s %q %w", resource, name, ErrNotFound)
	}
	return fmt.Errorf("%s %q %w in namespace %q", resource, name, ErrNotFound, namespace)
}

// Package firewall reads what a guest may send on its networks, and what of it was dropped. It is a package of its own,
// as every verb is that has a report, since the report is an API (docs/schemas).
package firewall

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/report/nwfilter"
)

// Report is what `firewall show -o json` prints: what a guest may send on its networks.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata names the virtual machine.
	Metadata Metadata `json:"metadata"`
	// Interfaces are the guest's, in the order of its spec.
	Interfaces []nwfilter.Interface `json:"interfaces"`
}

// Metadata names a virtual machine.
type Metadata struct {
	// Namespace and Name are the machine's.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// DeepCopyObject implements runtime.Object.
func (r *Report) DeepCopyObject() runtime.Object {
	out := *r
	out.Interfaces = append([]nwfilter.Interface{}, r.Interfaces...)
	return &out
}

// API has the method of a client that Read calls.
type API interface {
	Firewall(ctx context.Context, namespace, name string) (*nwfilter.Filter, error)
}

// NewReport returns a report without interfaces.
func NewReport(namespace, name string) *Report {
	return &Report{
		TypeMeta: metav1.TypeMeta{APIVersion: action.ReportVersion, Kind: "Firewall"},
		Metadata: Metadata{Namespace: namespace, Name: name}, Interfaces: []nwfilter.Interface{},
	}
}

// Read asks for a guest's. Errors: 404 no such instance, 409 it does not run.
func Read(ctx context.Context, api API, namespace, name string) (*Report, error) {
	found, err := api.Firewall(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	out := NewReport(namespace, name)
	out.Interfaces = append(out.Interfaces, found.Interfaces...)
	return out, nil
}

// Package permitted lists the devices of nodes that virtual machines may have, by the KubeVirt resource. It is a
// package of its own, as every verb is that has a report, since the report is an API (docs/schemas).
package permitted

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
)

// Report is what `permitted-devices -o json` prints.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	// PCI, Mediated and USB are the names of the resources that VMs ask for by deviceName, in the order of the KubeVirt
	// resource: cards, parts of cards (a vGPU), and what is plugged in outside.
	PCI      []string `json:"pci"`
	Mediated []string `json:"mediated"`
	USB      []string `json:"usb"`
}

// DeepCopyObject implements runtime.Object.
func (r *Report) DeepCopyObject() runtime.Object {
	out := *r
	out.PCI, out.Mediated, out.USB = clone(r.PCI), clone(r.Mediated), clone(r.USB)
	return &out
}

func clone(names []string) []string { return append([]string{}, names...) }

// NewReport returns an empty report.
func NewReport() *Report {
	return &Report{
		TypeMeta: metav1.TypeMeta{APIVersion: action.ReportVersion, Kind: "PermittedDevices"},
		PCI:      []string{}, Mediated: []string{}, USB: []string{},
	}
}

// Of lists what a KubeVirt resource permits.
func Of(kv *v1.KubeVirt) *Report {
	out := NewReport()
	all := kv.Spec.Configuration.PermittedHostDevices
	if all == nil {
		return out
	}
	for i := range all.PciHostDevices {
		out.PCI = append(out.PCI, all.PciHostDevices[i].ResourceName)
	}
	for i := range all.MediatedDevices {
		out.Mediated = append(out.Mediated, all.MediatedDevices[i].ResourceName)
	}
	for i := range all.USB {
		out.USB = append(out.USB, all.USB[i].ResourceName)
	}
	return out
}

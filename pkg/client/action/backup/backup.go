// Package backup writes a VM with its disks into one file, and makes a VM of such a file, on any cluster. The disks
// come out of a VirtualMachineExport (package export), of a VM that runs by a snapshot that is there for it, and go in
// by uploads (package upload). docs/export.md describes the file:
//
//	export: VM, or snapshot ─► VirtualMachineExport ─► Writer ─► .FILE.part ─► FILE
//	import: FILE ─► Open, Verify, Make ─► claims ─► uploads ─► VM
//
// resume.go goes on with what a run has left that was killed; index.go has the index, writer.go and reader.go the file,
// machine.go the rules of what a file becomes.
package backup

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/virtkit/virtkit/pkg/client/action"
)

// Report is what `export -o json` and `import -o json` print: the file, and the VM that is in it or was made of it.
type Report struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	// File is the file, and Bytes its size.
	File  string `json:"file"`
	Bytes int64  `json:"bytes"`
	// Created is when the file was begun, or changed last if it is none that export has written.
	Created time.Time `json:"created"`
	// Snapshot is the snapshot that the disks are of; empty for those of a stopped VM. Indications say what its guest
	// did meanwhile, as the snapshot's status does.
	Snapshot    string   `json:"snapshot,omitempty"`
	Indications []string `json:"indications,omitempty"`
	// Disks are the VM's disks.
	Disks []ReportedDisk `json:"disks"`
	// NotIncluded says what the VM had that is not in the file, or has no counterpart here.
	NotIncluded []string `json:"notIncluded,omitempty"`
	// Needs are objects that the VM names and the file does not have, as KIND NAME.
	Needs []string `json:"needs,omitempty"`
	// Seconds is how long it took.
	Seconds float64 `json:"seconds"`
}

// ReportedDisk is a disk in a report.
type ReportedDisk struct {
	// Volume is the VM's name for it, and Claim the claim that it was read from or written to.
	Volume string `json:"volume"`
	Claim  string `json:"claim"`
	// Bytes is how many bytes it has in the file, SHA256 their checksum.
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
	// DiskSize is the size of the disk, bytes.
	DiskSize int64 `json:"diskSize"`
}

// DeepCopyObject implements runtime.Object.
func (r *Report) DeepCopyObject() runtime.Object {
	out := *r
	r.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// NewReport returns a report about a file. made is nil for one that was exported.
func NewReport(path string, size int64, index *Index, made *Made, took time.Duration) *Report {
	r := &Report{
		TypeMeta:   metav1.TypeMeta{APIVersion: action.ReportVersion, Kind: "BackupReport"},
		ObjectMeta: metav1.ObjectMeta{Namespace: index.Namespace, Name: index.Name},
		File:       path, Bytes: size, Created: index.Created, Snapshot: index.Snapshot,
		Indications: index.Indications, NotIncluded: index.NotIncluded, Disks: []ReportedDisk{},
		Seconds: took.Round(time.Millisecond).Seconds(),
	}
	for i := range index.Disks {
		disk := &index.Disks[i]
		r.Disks = append(r.Disks, ReportedDisk{
			Volume: disk.Volume, Claim: disk.Claim, Bytes: disk.Bytes, SHA256: disk.SHA256, DiskSize: disk.DiskSize,
		})
	}
	if made != nil {
		r.Namespace, r.Name = made.VM.Namespace, made.VM.Name
		r.NotIncluded, r.Needs = made.NotIncluded, made.Needs
		for i, claim := range made.Claims {
			r.Disks[i].Claim = claim.Name
		}
	}
	return r
}

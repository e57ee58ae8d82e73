package volume

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/vm/claims"
)

// MoveReport says which disks of a VM are copied from which claim to which.
type MoveReport struct {
	metav1.TypeMeta `json:",inline"`
	// Namespace and Name are the VM's.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// State is Planned, Requested, Moved or Cancelled.
	State string `json:"state"`
	// Volumes are those whose disks are copied.
	Volumes []MovedVolume `json:"volumes"`
	// Notes are what there is to know besides.
	Notes []string `json:"notes"`
}

// MovedVolume is a volume whose disk is copied to another claim.
type MovedVolume struct {
	// Volume is the volume's name in the spec.
	Volume string `json:"volume"`
	// Bytes is the size of the guest's disk, 0 when that is not known.
	Bytes int64 `json:"bytes"`
	// From is the old claim, which is kept unless an annotation says Delete, and To the new one.
	From MovedClaim `json:"from"`
	To   MovedClaim `json:"to"`
}

// MovedClaim is one of the two claims.
type MovedClaim struct {
	// Name is the PersistentVolumeClaim's. Of a copy that was cancelled the rest is not known.
	Name string `json:"name"`
	// StorageClass is its class, and Size what it has, or asks for as long as it is not bound.
	StorageClass string `json:"storageClass"`
	Size         string `json:"size"`
	// VolumeMode is Filesystem or Block.
	VolumeMode string `json:"volumeMode"`
	// AccessModes are its access modes: ReadWriteOnce, ReadWriteMany.
	AccessModes []string `json:"accessModes"`
}

// The values of MoveReport.State.
const (
	Planned   = "Planned"
	Requested = "Requested"
	Moved     = "Moved"
	Cancelled = "Cancelled"
)

// ReportName returns the VM's name.
func (r *MoveReport) ReportName() string { return r.Name }

// DeepCopyObject implements runtime.Object.
func (r *MoveReport) DeepCopyObject() runtime.Object {
	out := *r
	out.Volumes, out.Notes = slices.Clone(r.Volumes), slices.Clone(r.Notes)
	for i := range out.Volumes {
		v := &out.Volumes[i]
		v.From.AccessModes, v.To.AccessModes = slices.Clone(v.From.AccessModes), slices.Clone(v.To.AccessModes)
	}
	return &out
}

func newReport(namespace, name, state string) *MoveReport {
	return &MoveReport{
		TypeMeta:  metav1.TypeMeta{APIVersion: action.ReportVersion, Kind: "VolumeMoveReport"},
		Namespace: namespace, Name: name, State: state, Volumes: []MovedVolume{}, Notes: []string{},
	}
}

// Report returns the report of a move in a state.
func (m *Moving) Report(state string) *MoveReport {
	r := newReport(m.VM.Namespace, m.VM.Name, state)
	r.Notes = append(r.Notes, m.Notes...)
	for _, move := range m.Moves {
		r.Volumes = append(r.Volumes, MovedVolume{
			Volume: move.Volume, Bytes: move.Bytes, From: reported(move.From), To: reported(move.To),
		})
	}
	return r
}

// CancelReport returns the report of a copy that was cancelled, by what Cancel returned.
func CancelReport(namespace, name string, state *v1.VolumeUpdateState) *MoveReport {
	r := newReport(namespace, name, Cancelled)
	for _, m := range state.VolumeMigrationState.MigratedVolumes {
		v := MovedVolume{Volume: m.VolumeName, From: infoOf(m.SourcePVCInfo), To: infoOf(m.DestinationPVCInfo)}
		r.Volumes = append(r.Volumes, v)
	}
	return r
}

func reported(claim *corev1.PersistentVolumeClaim) MovedClaim {
	out := described(claim.Name, claim.Status.Capacity, claim.Spec.Resources.Requests, claim.Spec.AccessModes,
		claim.Spec.VolumeMode)
	out.StorageClass = classOf(claim)
	return out
}

func infoOf(info *v1.PersistentVolumeClaimInfo) MovedClaim {
	if info == nil {
		return MovedClaim{AccessModes: []string{}}
	}
	return described(info.ClaimName, info.Capacity, info.Requests, info.AccessModes, info.VolumeMode)
}

func described(
	name string, has, asks corev1.ResourceList, modes []corev1.PersistentVolumeAccessMode,
	mode *corev1.PersistentVolumeMode,
) MovedClaim {
	out := MovedClaim{Name: name, VolumeMode: string(corev1.PersistentVolumeFilesystem), AccessModes: []string{}}
	if claims.IsBlock(mode) {
		out.VolumeMode = string(corev1.PersistentVolumeBlock)
	}
	for _, m := range modes {
		out.AccessModes = append(out.AccessModes, string(m))
	}
	for _, list := range []corev1.ResourceList{asks, has} {
		if size, ok := list[corev1.ResourceStorage]; ok && !size.Equal(resource.Quantity{}) {
			out.Size = size.String()
		}
	}
	return out
}

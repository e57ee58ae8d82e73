// Package volume plugs volumes into running virtual machines and unplugs them, through the subresources addvolume
// and removevolume.
package volume

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/wait"
	"github.com/virtkit/virtkit/pkg/vm/claims"
)

// API has the methods of a client that the package calls.
type API interface {
	Put(ctx context.Context, resource, namespace, name, subresource string, body any) error
	ReadMetadata(ctx context.Context, path string) (*metav1.PartialObjectMetadata, error)
}

// Options of a request; removing uses Volume, Instance and DryRun.
type Options struct {
	// Volume is the name of the PersistentVolumeClaim or DataVolume to add, or of the volume in the spec to remove.
	Volume string
	// Disk is the name of the volume to add, and of its disk, in the spec; empty is Volume.
	Disk string
	// Instance changes only the instance that runs; without it the VirtualMachine is changed, too, so that the change
	// outlives a restart.
	Instance bool
	// DryRun has the server check the request and do nothing.
	DryRun bool

	// DiskType is disk, cdrom or lun; empty is disk.
	DiskType string
	// Bus is scsi or virtio; empty leaves it to the server, which takes scsi.
	Bus string
	// Serial is the disk's serial number; empty is the volume's name.
	Serial string
	// Cache is none, writethrough or writeback; empty leaves it to the server.
	Cache string
}

// DiskTypes are the values of Options.DiskType, Buses and Caches those of the others.
var (
	DiskTypes = []string{"disk", "cdrom", "lun"}
	Buses     = []string{string(v1.DiskBusSCSI), string(v1.DiskBusVirtio)}
	Caches    = []string{string(v1.CacheNone), string(v1.CacheWriteThrough), string(v1.CacheWriteBack)}
)

func (o Options) dryRun() []string {
	if o.DryRun {
		return []string{metav1.DryRunAll}
	}
	return nil
}

// resource returns the resource that the request is about.
func (o Options) resource() string {
	if o.Instance {
		return client.VMIs
	}
	return client.VMs
}

// Name returns the name of the volume in the spec.
func (o Options) Name() string { return cmp.Or(o.Disk, o.Volume) }

// Request returns the body of a request to add a volume.
func Request(o Options) *v1.AddVolumeOptions {
	disk := &v1.Disk{Name: o.Name(), Serial: o.Serial, Cache: v1.DriverCache(o.Cache)}
	if disk.Serial == "" {
		disk.Serial = o.Volume
	}
	bus := v1.DiskBus(o.Bus)
	if bus == "" {
		bus = v1.DiskBusSCSI
	}
	switch o.DiskType {
	case "cdrom":
		disk.CDRom = &v1.CDRomTarget{Bus: bus}
	case "lun":
		disk.LUN = &v1.LunTarget{Bus: bus}
	default:
		disk.Disk = &v1.DiskTarget{Bus: bus}
	}
	return &v1.AddVolumeOptions{
		Name: o.Name(),
		Disk: disk,
		VolumeSource: &v1.HotplugVolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: o.Volume},
			Hotpluggable:                      true,
		}},
		DryRun: o.dryRun(),
	}
}

// Add requests that a volume is plugged in. It returns when the request is accepted, not when it is done.
func Add(ctx context.Context, api API, namespace, name string, o Options) error {
	imported, err := isDataVolume(ctx, api, namespace, o.Volume)
	if err != nil {
		return fmt.Errorf("add volume %s to %s/%s: %w", o.Volume, namespace, name, err)
	}
	request := Request(o)
	if imported {
		request.VolumeSource = &v1.HotplugVolumeSource{
			DataVolume: &v1.DataVolumeSource{Name: o.Volume, Hotpluggable: true},
		}
	}
	if err := api.Put(ctx, o.resource(), namespace, name, "addvolume", request); err != nil {
		return fmt.Errorf("add volume %s to %s/%s: %w", o.Volume, namespace, name, err)
	}
	return nil
}

// isDataVolume reports whether the claim of a name is a DataVolume's, or will be. It fails when there is neither.
// Whoever may add volumes need not be allowed to look at claims; they get the claim of the name.
func isDataVolume(ctx context.Context, api API, namespace, name string) (bool, error) {
	found, missing := api.ReadMetadata(ctx, path.Join("/api/v1/namespaces", namespace, "persistentvolumeclaims", name))
	switch {
	case missing == nil:
		owner := metav1.GetControllerOfNoCopy(found)
		return owner != nil && owner.Kind == "DataVolume", nil
	case apierrors.IsForbidden(missing):
		return false, nil
	case !apierrors.IsNotFound(missing):
		return false, missing
	}
	_, err := api.ReadMetadata(ctx,
		path.Join("/apis/cdi.kubevirt.io/v1beta1/namespaces", namespace, "datavolumes", name))
	if err != nil {
		return false, missing
	}
	return true, nil
}

// Remove requests that a volume is unplugged. It returns when the request is accepted, not when it is done.
func Remove(ctx context.Context, api API, namespace, name string, o Options) error {
	body := &v1.RemoveVolumeOptions{Name: o.Volume, DryRun: o.dryRun()}
	if err := api.Put(ctx, o.resource(), namespace, name, "removevolume", body); err != nil {
		return fmt.Errorf("remove volume %s from %s/%s: %w", o.Volume, namespace, name, err)
	}
	return nil
}

// Status returns a volume's status in the state of a machine, nil when it has none.
func Status(state wait.State, volume string) *v1.VolumeStatus {
	if state.VMI == nil {
		return nil
	}
	list := state.VMI.Status.VolumeStatus
	if at := slices.IndexFunc(list, func(s v1.VolumeStatus) bool { return s.Name == volume }); at >= 0 {
		return &list[at]
	}
	return nil
}

// Plugged holds when the guest has the volume. It also does for a VirtualMachine that does not run and will have it
// when it does.
func Plugged(volume string) wait.Condition {
	return wait.Condition{Name: fmt.Sprintf("to have volume %s", volume), Met: func(s wait.State) (bool, error) {
		if s.VMI == nil {
			return s.VM != nil && s.VM.Spec.Template != nil && has(s.VM.Spec.Template.Spec.Volumes, volume), nil
		}
		status := Status(s, volume)
		return status != nil && status.Phase == v1.VolumeReady, nil
	}}
}

// Unplugged holds when neither the guest nor its node has the volume any more.
func Unplugged(volume string) wait.Condition {
	return wait.Condition{Name: fmt.Sprintf("to be without volume %s", volume), Met: func(s wait.State) (bool, error) {
		return s.VMI == nil || Status(s, volume) == nil && !has(s.VMI.Spec.Volumes, volume), nil
	}}
}

func has(volumes []v1.Volume, name string) bool {
	return slices.ContainsFunc(volumes, func(v v1.Volume) bool { return v.Name == name })
}

// Names returns the hotplugged volumes of an instance or a template.
func Names(spec *v1.VirtualMachineInstanceSpec) []string {
	var out []string
	for i := range spec.Volumes {
		if source := claims.Of(&spec.Volumes[i]); source != nil && source.Hotpluggable {
			out = append(out, spec.Volumes[i].Name)
		}
	}
	return out
}

// OnClaims returns the volumes of an instance or a template that are on claims of its own, whether plugged in or not.
func OnClaims(spec *v1.VirtualMachineInstanceSpec) []string {
	var out []string
	for i := range spec.Volumes {
		if claims.Storage(&spec.Volumes[i]) {
			out = append(out, spec.Volumes[i].Name)
		}
	}
	return out
}

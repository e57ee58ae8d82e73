package backup

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/snapshot"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/clones"
	"github.com/virtkit/virtkit/pkg/vm/exports"
	"github.com/virtkit/virtkit/pkg/vm/filesystems"
	"github.com/virtkit/virtkit/pkg/vm/life"
	vmsnapshots "github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// source is what is exported: a VM, or the VM of a snapshot.
type source struct {
	vm *v1.VirtualMachine
	// taken is the snapshot, with its content; nil for a VM.
	taken   *snapshotv1beta1.VirtualMachineSnapshot
	content *snapshotv1beta1.VirtualMachineSnapshotContent
	// runs says that the VM's guest does, so that a snapshot is needed.
	runs bool
	// between is the status of a VM that starts or stops, of which no snapshot is taken; empty for others.
	between string
}

// look returns what is to be exported.
func look(ctx context.Context, c *client.Client, namespace, kind, name string) (*source, error) {
	if kind == exports.KindSnapshot {
		taken, err := snapshot.GetReady(ctx, c, namespace, name)
		if err != nil {
			return nil, err
		}
		return ofSnapshot(ctx, c, taken)
	}
	vm, err := c.VM(ctx, namespace, name)
	if err != nil {
		return nil, fmt.Errorf("look at VM %s/%s: %w", namespace, name, err)
	}
	if vm.Spec.Template == nil {
		return nil, fmt.Errorf("VM %s/%s has no template", namespace, name)
	}
	s := &source{vm: vm}
	vmi, err := c.VMI(ctx, namespace, name)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("look whether VM %s/%s runs: %w", namespace, name, err)
	}
	if s.runs = err == nil && life.Alive(vmi); s.runs {
		switch {
		case vmi.DeletionTimestamp != nil:
			s.between = string(v1.VirtualMachineStatusStopping)
		case vmi.Status.Phase != v1.Running:
			s.between = cmp.Or(string(vm.Status.PrintableStatus), string(v1.VirtualMachineStatusStarting))
		}
		_, err := snapshot.CheckWhole(vm, false, "stop the VM, and it is exported without a snapshot")
		if err != nil {
			return nil, err
		}
		// The snapshot that is to be made has them, too.
		s.vm = vm.DeepCopy()
		vmsnapshots.WithPlugged(&s.vm.Spec.Template.Spec, vm, vmi)
	}
	return s, nil
}

func ofSnapshot(
	ctx context.Context, c *client.Client, taken *snapshotv1beta1.VirtualMachineSnapshot,
) (*source, error) {
	content, err := snapshot.Content(ctx, c, taken)
	if err != nil {
		return nil, err
	}
	if content == nil || content.Spec.Source.VirtualMachine == nil ||
		content.Spec.Source.VirtualMachine.Spec.Template == nil {
		return nil, fmt.Errorf("snapshot %s/%s has no VM", taken.Namespace, taken.Name)
	}
	of := content.Spec.Source.VirtualMachine
	vm := &v1.VirtualMachine{ObjectMeta: *of.ObjectMeta.DeepCopy(), Spec: *of.Spec.DeepCopy()}
	vm.APIVersion, vm.Kind, vm.Namespace = v1.GroupVersion.String(), exports.KindVM, taken.Namespace
	return &source{vm: vm, taken: taken, content: content}, nil
}

// expanded returns the VM as a file has it: with its instance type and preference written out, which another cluster
// may have otherwise.
func (s *source) expanded(ctx context.Context, c *client.Client) (*v1.VirtualMachine, error) {
	vm := s.vm
	if vm.Spec.Instancetype != nil || vm.Spec.Preference != nil {
		text, err := json.Marshal(vm)
		if err == nil {
			vm, err = c.Expand(ctx, s.vm.Namespace, text)
		}
		if err != nil {
			return nil, fmt.Errorf("write out the instance type and preference of VM %s/%s: %w", s.vm.Namespace,
				s.vm.Name, err)
		}
	}
	return stored(vm), nil
}

// disks returns the disks that the file will have, as far as they are known before they are read, and what it will not
// have.
func (s *source) disks(
	ctx context.Context, c *client.Client, vm *v1.VirtualMachine,
) (disks []Disk, left []string, err error) {
	for i := range vm.Spec.Template.Spec.Volumes {
		volume := &vm.Spec.Template.Spec.Volumes[i]
		name := claims.Name(volume)
		twice := func(disk Disk) bool { return disk.Claim == name }
		switch {
		case name == "" || volume.MemoryDump != nil || slices.ContainsFunc(disks, twice):
		case !filesystems.Disk(&vm.Spec.Template.Spec, volume):
			left = append(left, fmt.Sprintf("volume %s, a file system on claim %s", volume.Name, name))
		default:
			spec, size, err := s.claim(ctx, c, name)
			if err != nil {
				return nil, nil, err
			}
			if spec == nil {
				left = append(left,
					fmt.Sprintf("volume %s on claim %s, which the snapshot does not have", volume.Name, name))
				continue
			}
			disks = append(disks, newDisk(volume.Name, name, size, spec))
		}
	}
	if clones.KeepsState(vm) {
		left = append(left, "the persistent state of its TPM or EFI, which begins anew")
	}
	return disks, left, nil
}

// newDisk returns a volume's disk as far as it is known before it is read.
func newDisk(volume, claim, size string, spec *corev1.PersistentVolumeClaimSpec) Disk {
	disk := Disk{
		Volume: volume, Claim: claim, Format: FormatRaw, Compression: CompressionGzip, ClaimSize: size,
		VolumeMode: string(corev1.PersistentVolumeFilesystem),
	}
	if spec.VolumeMode != nil {
		disk.VolumeMode = string(*spec.VolumeMode)
	}
	if spec.StorageClassName != nil {
		disk.StorageClass = *spec.StorageClassName
	}
	for _, mode := range spec.AccessModes {
		disk.AccessModes = append(disk.AccessModes, string(mode))
	}
	return disk
}

// claim returns the specification of a claim that is exported, and its size; nil for one that a snapshot does not have.
func (s *source) claim(
	ctx context.Context, c *client.Client, name string,
) (*corev1.PersistentVolumeClaimSpec, string, error) {
	sizeOf := func(resources corev1.ResourceList) string {
		size := resources[corev1.ResourceStorage]
		return resource.NewQuantity(size.Value(), resource.BinarySI).String() // 1e9 is 1000000000 then
	}
	if s.content != nil {
		for i := range s.content.Spec.VolumeBackups {
			backup := &s.content.Spec.VolumeBackups[i]
			if claim := &backup.PersistentVolumeClaim; claim.Name == name && backup.VolumeSnapshotName != nil {
				return &claim.Spec, sizeOf(claim.Spec.Resources.Requests), nil
			}
		}
		return nil, "", nil
	}
	claim := &corev1.PersistentVolumeClaim{}
	path := "/api/v1/namespaces/" + url.PathEscape(s.vm.Namespace) + "/" + client.Claims + "/" + url.PathEscape(name)
	if err := c.Read(ctx, path, nil, claim); err != nil {
		return nil, "", fmt.Errorf("look at claim %s/%s: %w", s.vm.Namespace, name, err)
	}
	size := claim.Status.Capacity
	if _, bound := size[corev1.ResourceStorage]; !bound {
		size = claim.Spec.Resources.Requests
	}
	return &claim.Spec, sizeOf(size), nil
}

package volumesnapshots

import (
	"context"
	"fmt"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/controller/optional"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
	"github.com/virtkit/virtkit/pkg/vm/vmstate"
)

// Classes returns the kind VolumeSnapshotClass.
func Classes() optional.Kind {
	return optional.Kind{
		Version: snapshotv1.SchemeGroupVersion, Resource: "volumesnapshotclasses",
		Object: &snapshotv1.VolumeSnapshotClass{},
	}
}

// Profiles returns CDI's kind StorageProfile, which may name a VolumeSnapshotClass.
func Profiles() optional.Kind {
	return optional.Kind{
		Version: cdiv1.SchemeGroupVersion, Resource: "storageprofiles", Object: &cdiv1.StorageProfile{},
	}
}

// Storage reads what decides which volumes of a VM can be snapshotted: claims, StorageClasses, VolumeSnapshotClasses
// and StorageProfiles.
type Storage struct {
	Client            client.Client
	Classes, Profiles *optional.Access
}

// Settled reports whether all of the kinds that are there are read.
func (s *Storage) Settled(ctx context.Context) (bool, error) {
	settled, err := s.Classes.Settled(ctx)
	if !settled || err != nil {
		return false, err
	}
	return s.Profiles.Settled(ctx)
}

// Facts returns what snapshots.Volumes asks for a VM and its VMI, which may be nil.
func (s *Storage) Facts(
	ctx context.Context, vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance,
) (snapshots.Facts, error) {
	facts := snapshots.Facts{Claims: map[string]*corev1.PersistentVolumeClaim{}}
	if vm.Spec.Template == nil {
		return facts, nil
	}
	volumes := snapshots.Plugged(vm, vmi)
	for i := range vm.Spec.Template.Spec.Volumes {
		volumes = append(volumes, &vm.Spec.Template.Spec.Volumes[i])
	}
	for _, volume := range volumes {
		name := snapshots.Claim(volume)
		if name == "" {
			continue
		}
		claim := &corev1.PersistentVolumeClaim{}
		err := s.Client.Get(ctx, types.NamespacedName{Namespace: vm.Namespace, Name: name}, claim)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return facts, fmt.Errorf("get claim %s: %w", name, err)
		}
		facts.Claims[name] = claim
	}
	var err error
	if facts.State, err = s.state(ctx, vm, vmi); err != nil {
		return facts, err
	}
	facts.Classes, err = s.ReadClasses(ctx)
	return facts, err
}

// state returns the claim of a VM's persistent state: the one that its VMI uses, or else the one that a start of the VM
// would mount.
func (s *Storage) state(
	ctx context.Context, vm *v1.VirtualMachine, vmi *v1.VirtualMachineInstance,
) (*corev1.PersistentVolumeClaim, error) {
	if !snapshots.KeepsState(vm, vmi) {
		return nil, nil
	}
	var list corev1.PersistentVolumeClaimList
	err := s.Client.List(ctx, &list, client.InNamespace(vm.Namespace),
		client.MatchingLabels{vmstate.Prefix: names.LabelValue(vm.Name)})
	if err != nil {
		return nil, fmt.Errorf("list claims of persistent state: %w", err)
	}
	used := ""
	if vmi != nil {
		if info := vmstate.Claim(vmi); info != nil {
			used = info.ClaimName
		}
	}
	var out []*corev1.PersistentVolumeClaim
	for i := range list.Items {
		claim := &list.Items[i]
		if claim.Name == used {
			return claim, nil
		}
		out = append(out, claim)
	}
	return vmstate.Choose(vm.Name, vm.UID, out), nil
}

// ReadClasses returns the classes of storage and of snapshots.
func (s *Storage) ReadClasses(ctx context.Context) (snapshots.Classes, error) {
	out := snapshots.Classes{
		Provisioners: map[string]string{}, Preferred: map[string]string{}, Late: map[string]bool{},
	}
	var storage storagev1.StorageClassList
	if err := s.Client.List(ctx, &storage, client.UnsafeDisableDeepCopy); err != nil {
		return out, fmt.Errorf("list StorageClasses: %w", err)
	}
	for i := range storage.Items {
		class := &storage.Items[i]
		out.Provisioners[class.Name] = class.Provisioner
		mode := class.VolumeBindingMode
		out.Late[class.Name] = mode != nil && *mode == storagev1.VolumeBindingWaitForFirstConsumer
	}
	var classes snapshotv1.VolumeSnapshotClassList
	if err := s.Classes.List(ctx, &classes, client.UnsafeDisableDeepCopy); err != nil {
		return out, err
	}
	for i := range classes.Items {
		class := &classes.Items[i]
		_, isDefault := class.Annotations[snapshots.DefaultClassAnnotation]
		out.Snapshots = append(out.Snapshots,
			snapshots.Class{Name: class.Name, Driver: class.Driver, Default: isDefault})
	}
	var profiles cdiv1.StorageProfileList
	if err := s.Profiles.List(ctx, &profiles, client.UnsafeDisableDeepCopy); err != nil {
		return out, err
	}
	for i := range profiles.Items {
		if class := profiles.Items[i].Status.SnapshotClass; class != nil {
			out.Preferred[profiles.Items[i].Name] = *class
		}
	}
	return out, nil
}

package migrate

import (
	"context"
	"fmt"
	"path"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// Left is a claim that a guest has left behind, since a migration copied its disk to another.
type Left struct {
	volumemigration.Copied
	// Gone says that the claim is gone, or going.
	Gone bool
	// DataVolume is the DataVolume that the claim belongs to, empty without one; WithVM says that the claim is deleted
	// with the VM.
	DataVolume string
	WithVM     bool
	// Fate is what becomes of the claim.
	Fate
	// Unknown is why it is not known to what the claim belongs; nil where the user may not see that, too.
	Unknown error
}

// Reader reads objects of the API, or their metadata.
type Reader interface {
	ObjectReader
	ReadMetadata(ctx context.Context, path string) (*metav1.PartialObjectMetadata, error)
}

// LeftBy returns the claims that a migration's guest has left behind. What the user may not read is taken to be there,
// and nobody's.
func LeftBy(ctx context.Context, api Reader, m *v1.VirtualMachineInstanceMigration) []Left {
	var out []Left
	all := volumemigration.CopiedBy(m)
	if len(all) == 0 {
		return nil
	}
	vm, unread := readVM(ctx, api, m.Namespace, m.Spec.VMIName)
	for _, copied := range all {
		left := Left{Copied: copied}
		claim := &corev1.PersistentVolumeClaim{}
		at := path.Join("/api/v1/namespaces", m.Namespace, "persistentvolumeclaims", copied.From)
		err := api.Read(ctx, at, nil, claim)
		owner, gone, unknown := ownerOf(claim, copied.From, err)
		left.Gone, left.Unknown = gone, unknown
		left.Fate = fateOf(ctx, api, vm, claim, unread, err)
		if owner != nil && owner.Kind == "DataVolume" {
			left.DataVolume = owner.Name
			dv, err := api.ReadMetadata(ctx, path.Join("/apis", cdiv1.SchemeGroupVersion.String(), "namespaces",
				m.Namespace, "datavolumes", owner.Name))
			owner, _, left.Unknown = ownerOf(dv, owner.Name, err)
		}
		left.WithVM = isVM(owner)
		out = append(out, left)
	}
	return out
}

// readVM returns the VM that says what becomes of claims, nil for none. It reports a VM that could not be read.
func readVM(ctx context.Context, api Reader, namespace, name string) (vm *v1.VirtualMachine, unread bool) {
	vm = &v1.VirtualMachine{}
	at := path.Join("/apis", v1.GroupVersion.String(), "namespaces", namespace, "virtualmachines", name)
	if err := api.Read(ctx, at, nil, vm); err != nil {
		return nil, !apierrors.IsNotFound(err)
	}
	if vm.DeletionTimestamp != nil {
		return nil, false // virt-controller asks it no more
	}
	return vm, false
}

// fateOf returns what becomes of a claim, which was read with an error or nil, by its VM, which may be none or unread.
func fateOf(
	ctx context.Context, api Reader, vm *v1.VirtualMachine, claim *corev1.PersistentVolumeClaim, unread bool, err error,
) Fate {
	switch {
	case unread:
		return Fate{Unread: "the VM, its template or the claim's class"}
	case vm == nil:
		return Fate{}
	case err != nil && volumemigration.ClassDecides(vm):
		return Fate{Unread: "the claim's class"}
	}
	class := ""
	if claim.Spec.StorageClassName != nil {
		class = *claim.Spec.StorageClassName
	}
	fate, _ := FateOf(ctx, api, vm, class) // Unread says it, too
	return fate
}

// ownerOf returns the first owner of an object, which was read with an error or nil, and whether it is gone, or going.
func ownerOf(object metav1.Object, name string, err error) (owner *metav1.OwnerReference, gone bool, unknown error) {
	switch {
	case apierrors.IsNotFound(err):
		return nil, true, nil
	case apierrors.IsForbidden(err):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("look at %s: %w", name, err)
	}
	if owners := object.GetOwnerReferences(); len(owners) > 0 {
		owner = &owners[0]
	}
	return owner, object.GetDeletionTimestamp() != nil, nil
}

func isVM(owner *metav1.OwnerReference) bool {
	return owner != nil && owner.Kind == v1.VirtualMachineGroupVersionKind.Kind
}

// Becomes says what becomes of the claim, and how to delete it; flag is that of kubectl for the namespace, with a space
// before it, or empty.
func (l *Left) Becomes(flag string) string {
	text := fmt.Sprintf("Claim %s, which volume %s had, is ", l.From, l.Volume)
	remove := "pvc " + l.From
	if l.DataVolume != "" {
		remove = "dv " + l.DataVolume
	}
	switch {
	case l.Gone:
		return text + "deleted"
	case l.Deleted:
		return text + "deleted by virt-controller if nobody else has it, as annotation " +
			volumemigration.CopiedClaimsAnnotation + " says"
	case l.WithVM:
		text += "kept until the VM is deleted"
	default:
		text += "kept"
	}
	text = fmt.Sprintf("%s%s; `kubectl delete %s%s` deletes it", text, l.Unless(), remove, flag)
	if l.Unknown != nil {
		text += fmt.Sprintf(" (to what it belongs is not known: %v)", l.Unknown)
	}
	return text
}

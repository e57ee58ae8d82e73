package migrate

import (
	"context"
	"fmt"
	"path"

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
	// Deleted says that virt-controller deletes the claim, since the VM says so.
	Deleted bool
	// Unread is why it is not known to what the claim belongs; nil where the user may not see that, too.
	Unread error
}

// Reader reads the metadata of an object of the API.
type Reader interface {
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
	at := path.Join("/apis", v1.GroupVersion.String(), "namespaces", m.Namespace, "virtualmachines", m.Spec.VMIName)
	vm, err := api.ReadMetadata(ctx, at)
	deletes := err == nil && vm.Annotations[volumemigration.CopiedClaimsAnnotation] == volumemigration.ClaimsDelete
	for _, copied := range all {
		left := Left{Copied: copied, Deleted: deletes}
		claim := path.Join("/api/v1/namespaces", m.Namespace, "persistentvolumeclaims", copied.From)
		owner, gone, err := ownerOf(ctx, api, claim)
		if owner != nil && owner.Kind == "DataVolume" {
			left.DataVolume = owner.Name
			owner, _, err = ownerOf(ctx, api, path.Join("/apis", cdiv1.SchemeGroupVersion.String(), "namespaces",
				m.Namespace, "datavolumes", owner.Name))
		}
		left.Gone, left.WithVM, left.Unread = gone, isVM(owner), err
		out = append(out, left)
	}
	return out
}

// ownerOf returns the first owner of an object, and whether the object is gone, or going.
func ownerOf(ctx context.Context, api Reader, at string) (owner *metav1.OwnerReference, gone bool, err error) {
	object, err := api.ReadMetadata(ctx, at)
	switch {
	case apierrors.IsNotFound(err):
		return nil, true, nil
	case apierrors.IsForbidden(err):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("look at %s: %w", path.Base(at), err)
	}
	if len(object.OwnerReferences) > 0 {
		owner = &object.OwnerReferences[0]
	}
	return owner, object.DeletionTimestamp != nil, nil
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
			volumemigration.CopiedClaimsAnnotation + " of the VM says"
	case l.WithVM:
		text += "kept until the VM is deleted"
	default:
		text += "kept"
	}
	text = fmt.Sprintf("%s; `kubectl delete %s%s` deletes it", text, remove, flag)
	if l.Unread != nil {
		text += fmt.Sprintf(" (to what it belongs is not known: %v)", l.Unread)
	}
	return text
}

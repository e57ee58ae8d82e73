package migrate

import (
	"context"
	"fmt"
	"net/url"
	"path"

	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// ObjectReader reads an object of the API.
type ObjectReader interface {
	Read(ctx context.Context, path string, query url.Values, into any) error
}

// Fate is what becomes of a claim once a guest has its disk on another.
type Fate struct {
	// Deleted says that virt-controller deletes the claim.
	Deleted bool
	// Unread is what could not be read, and may say that the claim is deleted: "class fast". Empty is nothing.
	Unread string
}

// FateOf finds out what becomes of a claim of a StorageClass that a VM's guest leaves. What the caller may not read is
// no error.
func FateOf(ctx context.Context, api ObjectReader, vm *v1.VirtualMachine, class string) (Fate, error) {
	if class == "" || !volumemigration.ClassDecides(vm) {
		return Fate{Deleted: volumemigration.DeletesClaims(vm, nil)}, nil
	}
	says := &storagev1.StorageClass{}
	err := api.Read(ctx, path.Join("/apis/storage.k8s.io/v1/storageclasses", class), nil, says)
	switch {
	case apierrors.IsNotFound(err):
		return Fate{}, nil
	case apierrors.IsForbidden(err):
		return Fate{Unread: "class " + class}, nil
	case err != nil:
		return Fate{Unread: "class " + class}, fmt.Errorf("read class %s: %w", class, err)
	}
	return Fate{Deleted: volumemigration.DeletesClaims(vm, says)}, nil
}

// Unless says, after "the claim is kept", when it is not, since something could not be read; empty if all could be.
func (f Fate) Unless() string {
	if f.Unread == "" {
		return ""
	}
	return fmt.Sprintf(", unless annotation %s of %s, which could not be read, says %s",
		volumemigration.CopiedClaimsAnnotation, f.Unread, volumemigration.ClaimsDelete)
}

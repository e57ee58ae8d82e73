package store

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Image is a claim that has a cloud image, or that is a copy of another claim.
type Image struct {
	Namespace, Name string
	UID             types.UID
	Created         time.Time
	Labels          map[string]string
	// Deleting is whether it is on its way out.
	Deleting bool
	// Ref is the image, NAME/VERSION; empty for a copy.
	Ref string
	// User is the account of the guest; Instancetype and Preference are the defaults of VMs that boot from it.
	User, Instancetype, Preference string
	// Size and Class are those of the claim.
	Size, Class string
	// Phase is one of package images.
	Phase string
	// Of is the claim of the namespace that a copy is of; empty for what is no copy.
	Of string
}

// Key returns the claim's namespace and name.
func (i *Image) Key() Key { return Key{Namespace: i.Namespace, Name: i.Name} }

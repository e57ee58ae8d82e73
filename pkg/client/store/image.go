package store

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Image is a claim that has a cloud image, to which a disk is uploaded, or that is a copy of another claim.
type Image struct {
	Namespace, Name string
	UID             types.UID
	Created         time.Time
	Labels          map[string]string
	// Deleting is whether it is on its way out.
	Deleting bool
	// Ref is the image, NAME/VERSION; empty for a copy, and for the upload of a disk that is no image.
	Ref string
	// User is the account of the guest; Instancetype and Preference are the defaults of VMs that boot from it.
	User, Instancetype, Preference string
	// Size and Class are those of the claim.
	Size, Class string
	// Phase is one of package images; empty for a copy.
	Phase string
	// Received is how many bytes of an upload have come, of Bytes, as far as that is known, and Message why it waits or
	// has failed.
	Received, Bytes int64
	Message         string
	// Of is the claim of the namespace that a copy is of; empty for what is no copy.
	Of string
}

// Key returns the claim's namespace and name.
func (i *Image) Key() Key { return Key{Namespace: i.Namespace, Name: i.Name} }

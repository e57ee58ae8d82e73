package volume

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/hotplug"
	"github.com/virtkit/virtkit/pkg/vm/sizing"
)

// ParseSize reads the size that a volume is to have.
func ParseSize(text string) (resource.Quantity, error) {
	size, err := resource.ParseQuantity(text)
	switch {
	case err != nil || size.Sign() <= 0:
		return size, fmt.Errorf("%q is not a size; write one such as 20Gi", text)
	case sizing.NoUnit(size):
		return size, fmt.Errorf("%s is less than 1Mi; a size has a unit, such as 20Gi", text)
	}
	return size, nil
}

// ResizeAPI has the methods of a client that Resize calls.
type ResizeAPI interface {
	Reader
	VM(ctx context.Context, namespace, name string) (*v1.VirtualMachine, error)
	VMI(ctx context.Context, namespace, name string) (*v1.VirtualMachineInstance, error)
	MergeObject(ctx context.Context, group, namespace, resource, name, subresource string, patch []byte, dryRun bool,
	) (*unstructured.Unstructured, error)
}

// Resizable is a volume of a machine with its claim, as Look found them.
type Resizable struct {
	// VM and VMI are the machine; either may be nil.
	VM  *v1.VirtualMachine
	VMI *v1.VirtualMachineInstance
	// Volume is what the spec has, Disk its disk; nil for a file system.
	Volume *v1.Volume
	Disk   *v1.Disk
	Claim  *corev1.PersistentVolumeClaim
	// Class is the claim's StorageClass; nil when there is none, or the user may not read it, which Hidden says.
	Class  *storagev1.StorageClass
	Hidden bool
	// Others are the other machines that have the claim.
	Others []string
}

// Look reads what is known of a volume that is to be resized. Errors say what cannot be resized at all.
func Look(ctx context.Context, api ResizeAPI, namespace, name, volume string, instance bool) (*Resizable, error) {
	r := &Resizable{}
	if err := r.machine(ctx, api, namespace, name, instance); err != nil {
		return nil, err
	}
	if err := r.find(name, volume); err != nil {
		return nil, err
	}
	claim := claims.Name(r.Volume)
	r.Claim = &corev1.PersistentVolumeClaim{}
	err := api.Read(ctx, claimPath(namespace, claim), nil, r.Claim)
	if apierrors.IsNotFound(err) && r.Volume.DataVolume != nil {
		return nil, fmt.Errorf("volume %s of %s: DataVolume %s has no claim yet: %w", volume, name, claim, err)
	}
	if err != nil {
		return nil, fmt.Errorf("claim %s of volume %s: %w", claim, volume, err)
	}
	if class := r.Claim.Spec.StorageClassName; class != nil && *class != "" {
		r.Class = &storagev1.StorageClass{}
		err := api.Read(ctx, path.Join("/apis/storage.k8s.io/v1/storageclasses", *class), nil, r.Class)
		switch {
		case apierrors.IsForbidden(err):
			r.Class, r.Hidden = nil, true
		case apierrors.IsNotFound(err):
			r.Class = nil
		case err != nil:
			return nil, fmt.Errorf("class %s of claim %s: %w", *class, claim, err)
		}
	}
	of, err := usersOf(ctx, api, namespace)
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("list the machines of %s: %w", namespace, err)
	}
	r.Others = slices.DeleteFunc(of[claim], func(other string) bool {
		return strings.TrimPrefix(other, "vmi/") == name
	})
	return r, nil
}

func claimPath(namespace, claim string) string {
	return path.Join("/api/v1/namespaces", namespace, "persistentvolumeclaims", claim)
}

// machine reads the VM and its instance. Whoever may not read one of them goes by the other.
func (r *Resizable) machine(ctx context.Context, api ResizeAPI, namespace, name string, instance bool) error {
	var vmErr, vmiErr error
	if !instance {
		if r.VM, vmErr = api.VM(ctx, namespace, name); vmErr != nil {
			r.VM = nil
		}
	}
	if r.VMI, vmiErr = api.VMI(ctx, namespace, name); vmiErr != nil {
		r.VMI = nil
	}
	for _, err := range []error{vmErr, vmiErr} {
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
			return err
		}
	}
	if r.VM == nil && r.VMI == nil {
		if vmErr != nil {
			return vmErr
		}
		return vmiErr
	}
	return nil
}

// find takes the volume out of the machine's spec: of the instance, or of what it would be.
func (r *Resizable) find(name, volume string) error {
	var specs []*v1.VirtualMachineInstanceSpec
	if r.VMI != nil {
		specs = append(specs, &r.VMI.Spec)
	}
	if r.VM != nil && r.VM.Spec.Template != nil {
		specs = append(specs, &r.VM.Spec.Template.Spec)
	}
	var names []string
	for _, spec := range specs {
		for _, name := range OnClaims(spec) {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
		if r.Volume == nil {
			if r.Volume = hotplug.Volume(spec, volume); r.Volume != nil {
				r.Disk = hotplug.Disk(spec, volume)
			}
		}
	}
	if r.Volume == nil {
		known := "none is on a claim"
		if len(names) > 0 {
			known = "those on claims are " + strings.Join(names, ", ")
		}
		return fmt.Errorf("volume %q %w in %s: %s", volume, action.ErrNotFound, name, known)
	}
	return unsized(r.Volume, r.Disk)
}

// unsized returns why a volume has no size of its own that could be changed; nil for one that has.
func unsized(v *v1.Volume, d *v1.Disk) error {
	what := fmt.Sprintf("volume %s cannot be resized: ", v.Name)
	switch {
	case v.ContainerDisk != nil:
		return errors.New(what + "it is a container disk, whose size is its image's; addvolume plugs a claim in")
	case v.EmptyDisk != nil:
		return errors.New(what + "it is an empty disk; change its emptyDisk.capacity in the VM's spec, which the " +
			"next start has, without what was on it")
	case v.Ephemeral != nil:
		return errors.New(what + "it is ephemeral, the guest only reads its claim")
	case v.HostDisk != nil:
		return errors.New(what + "it is an image on the node")
	case !claims.Storage(v):
		return errors.New(what + "it is not on a claim")
	case claims.Of(v).ReadOnly || d != nil && (d.CDRom != nil || d.Disk != nil && d.Disk.ReadOnly):
		return errors.New(what + "the guest only reads it")
	}
	return nil
}

// Sizes returns what a claim has, and what it requests; the former is zero for one that is not bound.
func Sizes(claim *corev1.PersistentVolumeClaim) (has, wants resource.Quantity) {
	return claim.Status.Capacity[corev1.ResourceStorage], claim.Spec.Resources.Requests[corev1.ResourceStorage]
}

// Check returns why the claim cannot have a size; nil when it can, or has it.
func (r *Resizable) Check(size resource.Quantity) error {
	name := r.Claim.Name
	has, wants := Sizes(r.Claim)
	switch {
	case r.Claim.DeletionTimestamp != nil:
		return fmt.Errorf("claim %s is being deleted", name)
	case r.Claim.Status.Phase == corev1.ClaimLost:
		return fmt.Errorf("claim %s has lost its storage", name)
	case r.Claim.Status.Phase != corev1.ClaimBound:
		return fmt.Errorf("claim %s is not bound: it has no storage yet, and Kubernetes changes the size of a bound "+
			"claim only; start the VM, which binds it, or make the claim anew", name)
	case size.Cmp(has) < 0:
		return fmt.Errorf("claim %s has %s, and no claim shrinks; %s is less", name, &has, &size)
	case size.Cmp(wants) == 0:
		return nil
	case size.Cmp(has) == 0 && wants.Cmp(has) > 0:
		return fmt.Errorf("claim %s is to grow from %s to %s, which Kubernetes takes back only down to a size above %s",
			name, &has, &wants, &has)
	case r.Claim.Spec.StorageClassName == nil || *r.Claim.Spec.StorageClassName == "":
		return fmt.Errorf("claim %s has no StorageClass, and only claims of a class that allows expansion grow", name)
	case r.Class == nil && !r.Hidden:
		return fmt.Errorf("claim %s is of StorageClass %s, which does not exist; only claims of a class that allows "+
			"expansion grow", name, *r.Claim.Spec.StorageClassName)
	case r.Class != nil && (r.Class.AllowVolumeExpansion == nil || !*r.Class.AllowVolumeExpansion):
		return fmt.Errorf("claim %s is of StorageClass %s, which does not allow expansion; a class with "+
			"allowVolumeExpansion: true does, where its driver can expand", name, r.Class.Name)
	}
	return nil
}

// Notes are what the user is to know besides.
func (r *Resizable) Notes() []string {
	var out []string
	if len(r.Others) > 0 {
		out = append(out, fmt.Sprintf("claim %s is also a volume of %s, where it grows, too", r.Claim.Name,
			strings.Join(r.Others, ", ")))
	}
	if r.VM != nil {
		for i := range r.VM.Spec.DataVolumeTemplates {
			if r.VM.Spec.DataVolumeTemplates[i].Name == r.Claim.Name {
				out = append(out, fmt.Sprintf("spec.dataVolumeTemplates of the VM keeps the size that %s was made with",
					r.Claim.Name))
			}
		}
	}
	return out
}

// Resize requests a size for the claim of a volume that Check has let through. It returns the claim as the server has
// it then.
func Resize(ctx context.Context, api ResizeAPI, r *Resizable, size resource.Quantity, dryRun bool) (
	*unstructured.Unstructured, error,
) {
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"resources": map[string]any{
		"requests": map[string]any{"storage": size.String()},
	}}})
	if err != nil {
		return nil, fmt.Errorf("encode the patch: %w", err)
	}
	out, err := api.MergeObject(ctx, "/api/v1", r.Claim.Namespace, client.Claims, r.Claim.Name, "", patch, dryRun)
	if err != nil {
		return nil, fmt.Errorf("resize claim %s: %w", r.Claim.Name, err)
	}
	return out, nil
}

// ReadClaim reads a claim as an object to print.
func ReadClaim(ctx context.Context, api Reader, namespace, claim string) (*unstructured.Unstructured, error) {
	out := &unstructured.Unstructured{}
	var object map[string]any
	if err := api.Read(ctx, claimPath(namespace, claim), url.Values{}, &object); err != nil {
		return nil, fmt.Errorf("claim %s: %w", claim, err)
	}
	out.SetUnstructuredContent(object)
	return out, nil
}

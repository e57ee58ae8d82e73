package rename

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/vmstate"
)

// Resource is a kind of objects that may belong to a VM.
type Resource struct {
	// Group is the path of the API: "/api/v1". Name is the resource's.
	Group, Name string
	// Data says that the objects hold the guest's: who may not change them cannot rename.
	Data bool
	// Controlled says that the VM is the objects' controller.
	Controlled bool
}

// The resources.
var (
	Claims      = Resource{Group: "/api/v1", Name: "persistentvolumeclaims", Data: true}
	DataVolumes = Resource{Group: "/apis/cdi.kubevirt.io/v1beta1", Name: "datavolumes", Data: true, Controlled: true}
	Revisions   = Resource{Group: "/apis/apps/v1", Name: "controllerrevisions", Controlled: true}
	Services    = Resource{Group: "/api/v1", Name: "services"}
	Secrets     = Resource{Group: "/api/v1", Name: "secrets"}
	ConfigMaps  = Resource{Group: "/api/v1", Name: "configmaps"}
	// Snapshots belong to the VM by its UID, and stay with the old one.
	Snapshots = Resource{Group: "/apis/snapshot.kubevirt.io/v1beta1", Name: "virtualmachinesnapshots"}
)

// Dependent is an object that belongs to a VM.
type Dependent struct {
	Resource Resource
	Meta     metav1.ObjectMeta
	// Fixed says that the user may not change it. Without its owner it stays, as nobody's.
	Fixed bool
}

// Change is what becomes of a dependent's owners and labels.
type Change struct {
	Dependent Dependent
	Owners    []metav1.OwnerReference
	// Labels are those that change.
	Labels map[string]string
}

// belongs reports whether one of the VMs owns the object, or it has the state of the old one.
func belongs(object *metav1.ObjectMeta, old, successor types.UID, oldName string) bool {
	return owned(object, old) || owned(object, successor) ||
		len(object.OwnerReferences) == 0 && object.Labels[vmstate.Prefix] == names.LabelValue(oldName)
}

func owned(object *metav1.ObjectMeta, uid types.UID) bool {
	return uid != "" && slices.ContainsFunc(object.OwnerReferences, ownedBy(uid))
}

func ownedBy(uid types.UID) func(metav1.OwnerReference) bool {
	return func(o metav1.OwnerReference) bool { return o.UID == uid }
}

// lend gives what the old VM owns a second owner, so that it stays when the first one goes.
func lend(dependents []Dependent, old, successor *v1.VirtualMachine) []Change {
	var out []Change
	for _, d := range dependents {
		if d.Fixed || !owned(&d.Meta, old.UID) || owned(&d.Meta, successor.UID) {
			continue
		}
		owners := append(slices.Clone(d.Meta.OwnerReferences), owner(successor))
		out = append(out, Change{Dependent: d, Owners: owners})
	}
	return out
}

// adopt makes what was lent the new VM's alone, and has the labels say so. Claims of the old VM's state that nobody
// owns go along, unless there is another VM of the name.
func adopt(
	dependents []Dependent, oldName string, old types.UID, successor *v1.VirtualMachine, nameless bool,
) []Change {
	var out []Change
	for _, d := range dependents {
		mine := owned(&d.Meta, successor.UID)
		if d.Fixed || !mine && (len(d.Meta.OwnerReferences) > 0 || !nameless) {
			continue
		}
		change := Change{Dependent: d, Labels: map[string]string{}}
		change.Owners = slices.DeleteFunc(slices.Clone(d.Meta.OwnerReferences), ownedBy(old))
		changed := len(change.Owners) != len(d.Meta.OwnerReferences)
		if mine && d.Resource.Controlled && !slices.ContainsFunc(change.Owners, controls) {
			at := slices.IndexFunc(change.Owners, ownedBy(successor.UID))
			yes := true
			change.Owners[at].Controller, changed = &yes, true
		}
		if d.Meta.Labels[vmstate.Prefix] == names.LabelValue(oldName) {
			change.Labels[vmstate.Prefix] = names.LabelValue(successor.Name)
		}
		if d.Meta.Labels[v1.CreatedByLabel] == string(old) {
			change.Labels[v1.CreatedByLabel] = string(successor.UID)
		}
		if changed || len(change.Labels) > 0 {
			out = append(out, change)
		}
	}
	return out
}

func controls(o metav1.OwnerReference) bool { return o.Controller != nil && *o.Controller }

// owner refers to a VM. It does not keep the VM from being deleted in the foreground, which takes a right of its
// own where the cluster asks for that.
func owner(vm *v1.VirtualMachine) metav1.OwnerReference {
	kind := v1.VirtualMachineGroupVersionKind
	return metav1.OwnerReference{
		APIVersion: kind.GroupVersion().String(), Kind: kind.Kind, Name: vm.Name, UID: vm.UID,
	}
}

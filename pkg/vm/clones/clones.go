// Package clones has the rules of VirtualMachineClones whose source is in another namespace: how one is recognized, who
// may make one, the names of its parts, and what of a VM is not copied. It is pure.
//
//	namespace of the source                          namespace of the clone
//	VirtualMachineSnapshot ─► VolumeSnapshot         VirtualMachineSnapshot ─► VolumeSnapshot ─► claims of the new VM
//	                               │                                                │
//	                     VolumeSnapshotContent ── one snapshot handle ── VolumeSnapshotContent (Retain)
package clones

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
	"github.com/virtkit/virtkit/pkg/vm/vmstate"
)

const (
	// KindSnapshot is the kind of a clone's source that is no VM.
	KindSnapshot = "VirtualMachineSnapshot"
	// NamespaceAnnotation on a clone names the namespace of its source, where that is not the clone's own. It is
	// given at creation and never changes.
	NamespaceAnnotation = "virtkit.io/source-namespace"
	// UIDAnnotation on such a clone is the source's UID. Admission writes it for who may clone from there.
	UIDAnnotation = "virtkit.io/source-uid"
	// Finalizer protects such a clone until nothing of it is left outside its namespace.
	Finalizer = "virtkit.io/clone-protection"
	// UIDLabel is on what a clone has made outside its namespace, and on its copy of an image: the clone's UID.
	UIDLabel = "virtkit.io/clone-uid"
	// CloneAnnotation is on the same objects: the clone's namespace and name.
	CloneAnnotation = "virtkit.io/clone"
	// CopiedAnnotation is on a VirtualMachineSnapshot that a clone has copied from another namespace, and which
	// nobody is to take, and on its copy of an image: the namespace and name of the original.
	CopiedAnnotation = "virtkit.io/carried-from"
)

// Group, Resource and Subresource name what a user must be allowed to create in the namespace of the source.
const (
	Group       = "clone.kubevirt.io"
	Resource    = "virtualmachineclones"
	Subresource = "source"
)

// Crosses reports a clone that says where its source is.
func Crosses(c metav1.Object) bool {
	_, crosses := c.GetAnnotations()[NamespaceAnnotation]
	return crosses
}

// SourceNamespace returns the namespace of a clone's source.
func SourceNamespace(c metav1.Object) string {
	if namespace, crosses := c.GetAnnotations()[NamespaceAnnotation]; crosses {
		return namespace
	}
	return c.GetNamespace()
}

// VolumeName returns the name of a clone's n-th VolumeSnapshot and of its VolumeSnapshotContent.
func VolumeName(c *clonev1beta1.VirtualMachineClone, n int) string {
	return fmt.Sprintf("clone-%s-%d", c.UID, n)
}

// VolumeNumber returns the n of a clone's n-th VolumeSnapshotContent, and whether the content is the clone's, by its
// label and by its name.
func VolumeNumber(c *clonev1beta1.VirtualMachineClone, content metav1.Object) (int, bool) {
	name := content.GetName()
	n, err := strconv.Atoi(name[strings.LastIndexByte(name, '-')+1:])
	return n, err == nil && Made(c, content) && name == VolumeName(c, n)
}

// ContentName returns the name of a clone's copy of a VirtualMachineSnapshotContent.
func ContentName(c *clonev1beta1.VirtualMachineClone) string { return "clone-content-" + string(c.UID) }

// Made reports whether an object has the label of what a clone has made. In the clone's own namespace others can write
// it.
func Made(c, object metav1.Object) bool {
	return c.GetUID() != "" && object.GetLabels()[UIDLabel] == string(c.GetUID())
}

// Missing returns the right that who makes a clone lacks, as a sentence.
func Missing(user, namespace string) string {
	return fmt.Sprintf("user %q cannot create resource \"%s/%s\" in API group %q in the namespace %q, which a clone "+
		"of what is there needs; the cluster roles kubevirt.io:edit and kubevirt.io:admin, edit and admin have it",
		user, Resource, Subresource, Group, namespace)
}

// Left returns what a VM names in its namespace that no snapshot has and that is not copied into another namespace, as
// KIND NAME, sorted.
func Left(spec *v1.VirtualMachineSpec) []string {
	if spec.Template == nil {
		return nil
	}
	var out []string
	add := func(kind, name string) {
		if name != "" {
			out = append(out, kind+" "+name)
		}
	}
	guest := &spec.Template.Spec
	for i := range guest.AccessCredentials {
		if keys := guest.AccessCredentials[i].SSHPublicKey; keys != nil && keys.Source.Secret != nil {
			add("Secret", keys.Source.Secret.SecretName)
		}
		if password := guest.AccessCredentials[i].UserPassword; password != nil && password.Source.Secret != nil {
			add("Secret", password.Source.Secret.SecretName)
		}
	}
	for i := range guest.Volumes {
		volume := &guest.Volumes[i]
		if volume.DataVolume != nil || volume.PersistentVolumeClaim != nil || volume.MemoryDump != nil {
			continue // the snapshot has it, or the copy is made without it
		}
		for _, ref := range claims.References(volume) {
			add(ref.Kind, ref.Name)
		}
	}
	for _, network := range guest.Networks {
		if network.Multus != nil && !strings.Contains(network.Multus.NetworkName, "/") {
			add("NetworkAttachmentDefinition", network.Multus.NetworkName)
		}
	}
	if m := spec.Instancetype; m != nil && m.RevisionName == "" && uploads.OfNamespace(m.Kind) {
		add("VirtualMachineInstancetype", m.Name)
	}
	if m := spec.Preference; m != nil && m.RevisionName == "" && uploads.OfNamespace(m.Kind) {
		add("VirtualMachinePreference", m.Name)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// KeepsState reports whether a VM, whose instance type and preference are written out, has persistent state.
func KeepsState(expanded *v1.VirtualMachine) bool {
	return expanded.Spec.Template != nil && vmstate.Needed(&expanded.Spec.Template.Spec)
}

// StateTrouble returns why the VM called source cannot be cloned under the name target, or "" when it can: the state of
// a persistent TPM and EFI goes by the VM's name. state says that the VM has one (KeepsState), or its snapshot
// (snapshots.HasState).
func StateTrouble(source string, state bool, target string) string {
	if !state || source == target {
		return ""
	}
	return fmt.Sprintf("VM %s has a persistent TPM or EFI, whose state goes by the VM's name: a copy must have "+
		"that name, in another namespace", source)
}

// LeftText names what is not copied into a namespace, or returns "" when everything is.
func LeftText(spec *v1.VirtualMachineSpec, namespace string) string {
	left := Left(spec)
	if len(left) == 0 {
		return ""
	}
	return fmt.Sprintf("the copy names %s, which are not copied; see that namespace %s has them before the copy is "+
		"started",
		strings.Join(left, ", "), namespace)
}

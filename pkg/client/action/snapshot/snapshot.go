// Package snapshot makes, lists, shows and deletes snapshots of virtual machines, and restores from them: the kinds of
// snapshot.kubevirt.io. Whoever calls it has said yes; it asks nobody.
package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/vm/clones"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
)

// Group is where the kinds are served.
const Group = "/apis/snapshot.kubevirt.io/v1beta1"

const contents = "virtualmachinesnapshotcontents"

// ErrNoKinds is a cluster without the kinds of snapshots.
var ErrNoKinds = errors.New("this cluster does not have snapshots of virtual machines; `virtctl install` brings them")

// errorOf returns ErrNoKinds where the cluster does not serve the kinds, else err.
func errorOf(err error) error {
	if client.Unserved(err) {
		return ErrNoKinds
	}
	return err
}

func path(resource, namespace string, name ...string) string {
	words := []string{Group}
	if namespace != "" {
		words = append(words, "namespaces", url.PathEscape(namespace))
	}
	words = append(words, resource)
	for _, n := range name {
		words = append(words, url.PathEscape(n))
	}
	return strings.Join(words, "/")
}

// Options are the options of a snapshot.
type Options struct {
	// Deadline is the most that it may take; nil is the server's five minutes.
	Deadline *metav1.Duration
	// Policy says whether its content goes with it; empty is Delete.
	Policy snapshotv1beta1.DeletionPolicy
	// Memory has it include the memory of the guest, which must run.
	Memory bool
}

// New returns the snapshot of a VM that the options ask for; it is not created yet.
func New(namespace, vm, name string, o Options) *snapshotv1beta1.VirtualMachineSnapshot {
	s := &snapshotv1beta1.VirtualMachineSnapshot{
		TypeMeta: metav1.TypeMeta{
			APIVersion: snapshotv1beta1.SchemeGroupVersion.String(), Kind: "VirtualMachineSnapshot",
		},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: snapshotv1beta1.VirtualMachineSnapshotSpec{
			Source: machine(vm), FailureDeadline: o.Deadline,
		},
	}
	if o.Policy != "" {
		s.Spec.DeletionPolicy = &o.Policy
	}
	if o.Memory {
		s.Annotations = map[string]string{savedmemory.IncludeAnnotation: "true"}
	}
	return s
}

// machine refers to a VM.
func machine(name string) corev1.TypedLocalObjectReference {
	kind := v1.VirtualMachineGroupVersionKind
	return corev1.TypedLocalObjectReference{APIGroup: &kind.Group, Kind: kind.Kind, Name: name}
}

// Create makes a snapshot and returns it as the server has it; it is not taken yet.
func Create(
	ctx context.Context, c *client.Client, s *snapshotv1beta1.VirtualMachineSnapshot, dryRun bool,
) (*snapshotv1beta1.VirtualMachineSnapshot, error) {
	out := &snapshotv1beta1.VirtualMachineSnapshot{}
	if err := c.CreateTyped(ctx, Group, client.Snapshots, s, out, dryRun); err != nil {
		return nil, fmt.Errorf("take snapshot %s/%s of VM %s: %w", s.Namespace, s.Name, s.Spec.Source.Name,
			errorOf(err))
	}
	return out, nil
}

// Get reads a snapshot.
func Get(ctx context.Context, c *client.Client, namespace, name string) (
	*snapshotv1beta1.VirtualMachineSnapshot, error,
) {
	s := &snapshotv1beta1.VirtualMachineSnapshot{}
	if err := c.Read(ctx, path(client.Snapshots, namespace, name), nil, s); err != nil {
		return nil, fmt.Errorf("read snapshot %s/%s: %w", namespace, name, errorOf(err))
	}
	return s, nil
}

// List lists the snapshots of a namespace, or of all with "", the oldest first; of one VM unless vm is empty.
func List(ctx context.Context, c *client.Client, namespace, selector, vm string) (
	*snapshotv1beta1.VirtualMachineSnapshotList, error,
) {
	query := url.Values{}
	if selector != "" {
		query.Set("labelSelector", selector)
	}
	list := &snapshotv1beta1.VirtualMachineSnapshotList{}
	if err := c.Read(ctx, path(client.Snapshots, namespace), query, list); err != nil {
		return nil, fmt.Errorf("list snapshots: %w", errorOf(err))
	}
	list.APIVersion, list.Kind = snapshotv1beta1.SchemeGroupVersion.String(), "VirtualMachineSnapshotList"
	list.Items = slices.DeleteFunc(list.Items, func(s snapshotv1beta1.VirtualMachineSnapshot) bool {
		return vm != "" && !Of(&s, vm)
	})
	for i := range list.Items { // the items of a list have no kinds of their own
		list.Items[i].APIVersion, list.Items[i].Kind = list.APIVersion, "VirtualMachineSnapshot"
	}
	slices.SortStableFunc(list.Items, func(a, b snapshotv1beta1.VirtualMachineSnapshot) int {
		if n := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); n != 0 {
			return n
		}
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return list, nil
}

// Of reports whether a snapshot is one of a VM.
func Of(s *snapshotv1beta1.VirtualMachineSnapshot, vm string) bool {
	return s.Spec.Source.Kind == v1.VirtualMachineGroupVersionKind.Kind && s.Spec.Source.Name == vm
}

// CloneOf returns the name of the clone that has made a snapshot for itself, with its namespace where that is another,
// and "" for a snapshot of nobody's clone. The clone removes it when it is done.
func CloneOf(s *snapshotv1beta1.VirtualMachineSnapshot) string {
	for _, o := range s.OwnerReferences {
		if o.Kind == "VirtualMachineClone" && strings.HasPrefix(o.APIVersion, clones.Group+"/") {
			return o.Name
		}
	}
	if uid := s.Labels[clones.UIDLabel]; uid != "" {
		return cmp.Or(s.Annotations[clones.CloneAnnotation], uid)
	}
	return ""
}

// Delete deletes a snapshot, if it is the one with the UID; whichever it is when that is empty. It returns when the
// request is accepted.
func Delete(ctx context.Context, c *client.Client, namespace, name string, uid types.UID, dryRun bool) error {
	var opts metav1.DeleteOptions
	if uid != "" {
		opts.Preconditions = &metav1.Preconditions{UID: &uid}
	}
	if dryRun {
		opts.DryRun = []string{metav1.DryRunAll}
	}
	if err := c.DeleteObject(ctx, Group, namespace, client.Snapshots, name, opts); err != nil {
		return fmt.Errorf("delete snapshot %s/%s: %w", namespace, name, errorOf(err))
	}
	return nil
}

// Content returns a snapshot's content, nil where there is none yet.
func Content(ctx context.Context, c *client.Client, s *snapshotv1beta1.VirtualMachineSnapshot) (
	*snapshotv1beta1.VirtualMachineSnapshotContent, error,
) {
	if s.Status == nil || s.Status.VirtualMachineSnapshotContentName == nil {
		return nil, nil
	}
	out := &snapshotv1beta1.VirtualMachineSnapshotContent{}
	name := *s.Status.VirtualMachineSnapshotContentName
	if err := c.Read(ctx, path(contents, s.Namespace, name), nil, out); err != nil {
		return nil, fmt.Errorf("read content %s of snapshot %s/%s: %w", name, s.Namespace, s.Name, errorOf(err))
	}
	return out, nil
}

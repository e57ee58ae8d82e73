// Package sets lists and scales the kinds that keep a number of machines: VirtualMachineInstanceReplicaSet and
// VirtualMachinePool. Objects are read as the server has them, which needs none of their types.
package sets

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"kubevirt.io/api/pool/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/outage"
	"github.com/virtkit/virtkit/pkg/vm/pools"
)

// Kind is one of the two.
type Kind struct {
	// Short is the kind's short name, Resource its plural, and Group where it is served, "/apis/GROUP/VERSION".
	Short, Resource, Group string
	// Title is what its sets are called, and Members the resource of their machines.
	Title, Members string
}

// Qualified returns the resource with its group, as the server names it.
func (k Kind) Qualified() string {
	group, _, _ := strings.Cut(strings.TrimPrefix(k.Group, "/apis/"), "/")
	return k.Resource + "." + group
}

// The kinds.
var (
	ReplicaSet = Kind{
		"vmirs", "virtualmachineinstancereplicasets", "/apis/kubevirt.io/v1", "replica sets", "virtualmachineinstances",
	}
	Pool = Kind{"vmpool", "virtualmachinepools", "/apis/pool.kubevirt.io/v1beta1", "pools", "virtualmachines"}
)

// KindOf reads a word for one of the kinds.
func KindOf(word string) (Kind, bool) {
	word, _, _ = strings.Cut(strings.ToLower(word), ".") // virtualmachinepools.pool.kubevirt.io
	switch word {
	case "vmirs", "vmirss", "virtualmachineinstancereplicaset", "virtualmachineinstancereplicasets":
		return ReplicaSet, true
	case "vmpool", "vmpools", "pool", "pools", "virtualmachinepool", "virtualmachinepools":
		return Pool, true
	}
	return Kind{}, false
}

// API has the methods of a client that the package calls.
type API interface {
	Read(ctx context.Context, path string, query url.Values, into any) error
	MergeObject(ctx context.Context, group, namespace, resource, name, subresource string, patch []byte,
		dryRun bool) (*unstructured.Unstructured, error)
}

// path returns the API path of a kind's objects in a namespace, of all namespaces with "", or of one object.
func (k Kind) path(namespace string, name ...string) string {
	out := k.Group
	if namespace != "" {
		out += "/namespaces/" + url.PathEscape(namespace)
	}
	out += "/" + k.Resource
	for _, n := range name {
		out += "/" + url.PathEscape(n)
	}
	return out
}

// Get reads a set.
func Get(ctx context.Context, c API, kind Kind, namespace, name string) (*unstructured.Unstructured, error) {
	out := &unstructured.Unstructured{}
	if err := c.Read(ctx, kind.path(namespace, name), nil, out); err != nil {
		return nil, fmt.Errorf("%s %s/%s: %w", kind.Short, namespace, name, err)
	}
	return out, nil
}

// List lists sets of a namespace, or of all with "", by their names.
func List(
	ctx context.Context, c API, kind Kind, namespace, labelSelector, fieldSelector string,
) (*unstructured.UnstructuredList, error) {
	query := url.Values{}
	if labelSelector != "" {
		query.Set("labelSelector", labelSelector)
	}
	if fieldSelector != "" {
		query.Set("fieldSelector", fieldSelector)
	}
	out := &unstructured.UnstructuredList{}
	if err := c.Read(ctx, kind.path(namespace), query, out); err != nil {
		return nil, fmt.Errorf("list %s: %w", kind.Title, err)
	}
	slices.SortFunc(out.Items, func(a, b unstructured.Unstructured) int {
		return strings.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
	})
	return out, nil
}

// Row is a set's row in a table.
type Row struct {
	Namespace, Name string
	// Desired, Current and Ready are numbers of members.
	Desired, Current, Ready int64
	Created                 time.Time
	// Paused says that nothing is made or removed; Failure is what the controller says why it could not.
	Paused  bool
	Failure string
	// KeepsExcess is the strategy, "opportunistic" or "unmanaged", by which a pool deletes no VM when there are too
	// many; empty of one that does.
	KeepsExcess string
	// Note is what keeps the set from what it is asked for, or that it is paused; empty when all is well.
	Note string
}

// RowOf reads a set.
func RowOf(set *unstructured.Unstructured) Row {
	row := Row{Namespace: set.GetNamespace(), Name: set.GetName(), Created: set.GetCreationTimestamp().
		Time, Desired: Desired(set)}
	row.Current = number(set, "status", "replicas")
	row.Ready = number(set, "status", "readyReplicas")
	conditions, _, _ := unstructured.NestedSlice(set.Object, "status", "conditions") // what is no list is none
	var notes []string
	for _, item := range conditions {
		condition, ok := item.(map[string]any)
		if !ok || condition["status"] != "True" {
			continue
		}
		switch condition["type"] {
		case "ReplicaPaused":
			row.Paused = true
			notes = append(notes, "paused")
		case "ReplicaFailure":
			row.Failure = fmt.Sprintf("%v: %v", condition["reason"], condition["message"])
			notes = append(notes, row.Failure)
		}
	}
	row.KeepsExcess = keepsExcess(set)
	if row.KeepsExcess != "" && row.Current > row.Desired {
		notes = append(notes, fmt.Sprintf("its scaleInStrategy is %s: it deletes no VM", row.KeepsExcess))
	}
	row.Note = strings.Join(notes, "; ")
	return row
}

// keepsExcess returns the strategy by which a pool keeps VMs that are too many; a replica set has none.
func keepsExcess(set *unstructured.Unstructured) string {
	strategies, _, _ := unstructured.NestedMap(set.Object, "spec", "scaleInStrategy") // what is no map is none
	var strategy v1beta1.VirtualMachinePoolScaleInStrategy
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(strategies, &strategy); err != nil {
		return "" // the API server has admitted it: it is of a newer version
	}
	return pools.KeepsExcess(&strategy)
}

// Desired returns how many members a set asks for.
func Desired(set *unstructured.Unstructured) int64 {
	if _, found, err := unstructured.NestedFieldNoCopy(set.Object, "spec", "replicas"); err != nil || !found {
		return 1
	}
	return number(set, "spec", "replicas")
}

func number(set *unstructured.Unstructured, path ...string) int64 {
	n, _, _ := unstructured.NestedInt64(set.Object, path...) // what is no number is none
	return n
}

// Request is a change of a set's size.
type Request struct {
	Kind            Kind
	Namespace, Name string
	// Replicas is the new size.
	Replicas int32
	// Current is the size that the set must have asked for till now; nil for any.
	Current *int32
	// UID is of the set that is meant, so that another is spared that has its name by now; empty for any.
	UID    types.UID
	DryRun bool
}

// Find returns the set of a name where the kind was not said: a pool, else a replica set. Both at once is an error.
func Find(ctx context.Context, c API, namespace, name string) (Kind, error) {
	var found []Kind
	for _, kind := range []Kind{Pool, ReplicaSet} {
		_, err := Get(ctx, c, kind, namespace, name)
		if err == nil {
			found = append(found, kind)
		} else if !apierrors.IsNotFound(err) {
			return Kind{}, err
		}
	}
	switch len(found) {
	case 0:
		return Kind{}, fmt.Errorf("pool or replica set %q %w in namespace %q", name, action.ErrNotFound, namespace)
	case 1:
		return found[0], nil
	}
	return Kind{},
		fmt.Errorf("%s/%s is a pool and a replica set; say vmpool/%s or vmirs/%s", namespace, name, name, name)
}

// ConflictError is a set that asked for another size than the caller believed.
type ConflictError struct{ Want, Have int64 }

func (e *ConflictError) Error() string {
	return fmt.Sprintf("it asks for %s and not %d", replicasOf(e.Have), e.Want)
}

// afresh is how a set is read again whose status was written between the read and the change: 5 s in all.
var afresh = wait.Backoff{Steps: 10, Duration: 10 * time.Millisecond, Factor: 2, Jitter: 0.1}

// Scale changes the size of a set through its scale subresource, as kubectl scale does, and returns what it
// was before. With r.Current it is a change of the set as it was read, and made again for a set that was written since.
func Scale(ctx context.Context, c API, r Request) (before Row, err error) {
	err = retry.OnError(afresh, func(err error) bool { return ctx.Err() == nil && apierrors.IsConflict(err) },
		func() error {
			before, err = scale(ctx, c, r)
			return err
		})
	return before, err
}

func scale(ctx context.Context, c API, r Request) (before Row, err error) {
	set, err := Get(ctx, c, r.Kind, r.Namespace, r.Name)
	if err != nil {
		return Row{}, err
	}
	if r.UID != "" && set.GetUID() != r.UID {
		return Row{}, fmt.Errorf("%s %s/%s: it is gone, and another of its name stays as it is: %w", r.Kind.Short,
			r.Namespace, r.Name, action.ErrNotFound)
	}
	before = RowOf(set)
	patch := map[string]any{"spec": map[string]any{"replicas": r.Replicas}}
	if r.Current != nil {
		if want := int64(*r.Current); before.Desired != want {
			return before,
				fmt.Errorf("%s %s/%s: %w", r.Kind.Short, r.Namespace, r.Name, &ConflictError{want, before.Desired})
		}
		patch["metadata"] = map[string]any{"resourceVersion": set.GetResourceVersion()}
	}
	data, err := json.Marshal(patch)
	if err != nil {
		return before, fmt.Errorf("encode the scale: %w", err)
	}
	if _, err := c.MergeObject(ctx, r.Kind.Group, r.Namespace, r.Kind.Resource, r.Name, "scale", data, r.DryRun); err !=
		nil {
		return before, fmt.Errorf("scale %s %s/%s: %w", r.Kind.Short, r.Namespace, r.Name, err)
	}
	return before, nil
}

// ErrNeverReady is a set whose members are not started, so that waiting for them is in vain.
var ErrNeverReady = errors.New("will never be ready")

// CanBeReady returns an ErrNeverReady where more members than are ready now are waited for, and the set's template lets
// none start. A set that gets fewer members has none to wait for.
func CanBeReady(ctx context.Context, c API, kind Kind, namespace, name string, replicas int64) error {
	set, err := Get(ctx, c, kind, namespace, name)
	if err != nil {
		return err
	}
	if row := RowOf(set); row.Ready < replicas && row.Current <= replicas && startsNone(set) {
		return fmt.Errorf("%s %s/%s: new machines %w, since its template has run strategy Halted", kind.Short,
			namespace, name, ErrNeverReady)
	}
	return nil
}

// startsNone reports a set whose template starts none of its members.
func startsNone(set *unstructured.Unstructured) bool {
	spec, _, _ := unstructured.NestedMap(set.Object, "spec", "virtualMachineTemplate", "spec") // a replica set has none
	running, given := spec["running"].(bool)
	return spec["runStrategy"] == "Halted" || given && !running
}

// poll is how often Wait looks.
const poll = time.Second

// Wait waits until a set has as many members as were asked for, all of them are ready, unless its template starts none,
// and those that it had too many are gone. The set is given as it was seen last; at ctx's deadline the error is an
// action.ErrTimeout.
func Wait(
	ctx context.Context, c API, kind Kind, namespace, name string, replicas int64,
) (*unstructured.Unstructured, error) {
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	out := outage.Follow(ctx)
	defer out.End()
	var seen *unstructured.Unstructured
	var left counted
	for {
		out.Asks()
		set, err := Get(ctx, c, kind, namespace, name)
		if err == nil {
			seen = set
			left, err = members(ctx, c, kind, set)
		}
		if err != nil && ctx.Err() == nil && (seen == nil || !client.Passing(err)) {
			return seen, err
		}
		out.Lost(ctx, err)
		if err == nil {
			out.Answered()
			row := RowOf(set)
			ready := row.Ready == replicas || startsNone(set)
			if row.Desired == replicas && row.Current == replicas && ready && left.all <= replicas {
				return set, nil
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return seen, ctx.Err()
			}
			return seen, fmt.Errorf("%w waiting for %s %s/%s to have %s: %s", action.ErrTimeout, kind.Short,
				namespace, name, replicasOf(replicas), standing(seen, left.going))
		}
	}
}

func replicasOf(n int64) string {
	if n == 1 {
		return "1 replica"
	}
	return fmt.Sprintf("%d replicas", n)
}

// standing describes a set that did not get ready in time; nil is one that the cluster said nothing of. going is how
// many of its members are being deleted.
func standing(set *unstructured.Unstructured, going int64) string {
	if set == nil {
		return "the cluster gave no answer"
	}
	row := RowOf(set)
	text := fmt.Sprintf("it has %d of %d, %d of them ready", row.Current, row.Desired, row.Ready)
	switch {
	case going == 1:
		text += ", and 1 is being stopped"
	case going > 1:
		text += fmt.Sprintf(", and %d are being stopped", going)
	}
	if row.Note != "" {
		text += " (" + row.Note + ")"
	}
	return text
}

// counted are the machines of a set that are there, and those of them that are being deleted.
type counted struct{ all, going int64 }

// members counts the machines of a set.
func members(ctx context.Context, c API, kind Kind, set *unstructured.Unstructured) (counted, error) {
	of := kind
	of.Group, of.Resource = ReplicaSet.Group, kind.Members
	list := &metav1.PartialObjectMetadataList{}
	if err := c.Read(ctx, of.path(set.GetNamespace()), nil, list); err != nil {
		return counted{}, fmt.Errorf("list the machines of %s %s/%s: %w", kind.Short, set.GetNamespace(),
			set.GetName(), err)
	}
	var count counted
	for i := range list.Items {
		if owner := metav1.GetControllerOfNoCopy(&list.Items[i]); owner != nil && owner.UID == set.GetUID() {
			count.all++
			if list.Items[i].DeletionTimestamp != nil {
				count.going++
			}
		}
	}
	return count, nil
}

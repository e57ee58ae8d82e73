// Package diff finds out what applying a manifest would do to virtual machines: which fields it changes, and when each
// takes effect: at once, or with the next start of the guest. The server is asked, in a dry run, so that defaults and
// the webhooks' verdict count; what it answers is compared with what is there by the pure package rollout.
package diff

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/vm/rollout"
)

// Report is what `diff -o json` prints.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	// Objects are the virtual machines of the manifest, in its order.
	Objects []Object `json:"objects"`
	// Skipped are objects of other kinds, which are not compared.
	Skipped []Object `json:"skipped,omitempty"`
}

// RowLists returns the key of the objects.
func (r *Report) RowLists() []string { return []string{"objects"} }

// Object is one object of the manifest.
type Object struct {
	// Kind, Namespace and Name are the object's.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Exists is whether it is there; one that is not would be created.
	Exists bool `json:"exists"`
	// Running is whether it has a guest, which is what the effects are about.
	Running bool `json:"running"`
	// Changes are the fields that would change, by path; none for an object that would be created.
	Changes []Change `json:"changes,omitempty"`
}

// Change is one field that would change.
type Change struct {
	// Path is the field: spec.template.spec.domain.cpu.cores. An element of a list is [NAME], or [INDEX].
	Path string `json:"path"`
	// Effect is when: live, hotplug, migration, restart (of the guest that runs) or start (of one that does not).
	Effect rollout.Effect `json:"effect"`
	// Note says more, such as that the guest stops.
	Note string `json:"note,omitempty"`
	// Before and After are the values, absent where the field is.
	Before any `json:"before,omitempty"`
	After  any `json:"after,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (r *Report) DeepCopyObject() runtime.Object {
	out := *r
	out.Objects, out.Skipped = slices.Clone(r.Objects), slices.Clone(r.Skipped)
	return &out
}

// Differs reports whether applying would change anything.
func (r *Report) Differs() bool {
	return slices.ContainsFunc(r.Objects, func(o Object) bool { return !o.Exists || len(o.Changes) > 0 })
}

// API has the methods of a client that the package calls.
type API interface {
	Raw(ctx context.Context, resource, namespace, name string) (map[string]any, error)
	TryPatch(ctx context.Context, resource, namespace, name string, kind types.PatchType, patch []byte,
		opts metav1.PatchOptions) (map[string]any, error)
	TryCreate(ctx context.Context, resource, namespace string, object []byte) (map[string]any, error)
	VMI(ctx context.Context, namespace, name string) (*v1.VirtualMachineInstance, error)
	Expand(ctx context.Context, namespace string, vm []byte) (*v1.VirtualMachine, error)
	KubeVirtList(ctx context.Context) (*v1.KubeVirtList, error)
	Read(ctx context.Context, path string, query url.Values, into any) error
}

// Options say how the manifest would be applied.
type Options struct {
	// Namespace is that of objects which name none.
	Namespace string
	// ServerSide is as `kubectl apply --server-side`, else as `kubectl apply` alone.
	ServerSide bool
	// FieldManager and ForceConflicts are those of server-side apply.
	FieldManager   string
	ForceConflicts bool
}

var resources = map[string]string{
	v1.VirtualMachineGroupVersionKind.Kind:         client.VMs,
	v1.VirtualMachineInstanceGroupVersionKind.Kind: client.VMIs,
}

// Diff compares the objects of a manifest with the cluster.
func Diff(ctx context.Context, api API, objects []map[string]any, o Options) (*Report, error) {
	out := &Report{TypeMeta: metav1.TypeMeta{APIVersion: action.ReportVersion, Kind: "DiffReport"}, Objects: []Object{}}
	for _, object := range objects {
		head, err := headOf(object, o.Namespace)
		if err != nil {
			return out, err
		}
		if resources[head.Kind] == "" || object["apiVersion"] != v1.GroupVersion.String() {
			out.Skipped = append(out.Skipped, head)
			continue
		}
		if err := one(ctx, api, object, &head, o); err != nil {
			return out, fmt.Errorf("%s %s/%s: %w", head.Kind, head.Namespace, head.Name, err)
		}
		out.Objects = append(out.Objects, head)
	}
	return out, nil
}

// headOf reads which object a manifest means.
func headOf(object map[string]any, namespace string) (Object, error) {
	kind, _ := object["kind"].(string)
	metadata, _ := object["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	if kind == "" || name == "" {
		return Object{}, fmt.Errorf("an object of the manifest has no kind or no metadata.name")
	}
	if own, ok := metadata["namespace"].(string); ok && own != "" {
		namespace = own
	}
	return Object{Kind: kind, Namespace: namespace, Name: name}, nil
}

// one compares one object.
func one(ctx context.Context, api API, object map[string]any, head *Object, o Options) error {
	resource := resources[head.Kind]
	live, err := api.Raw(ctx, resource, head.Namespace, head.Name)
	if apierrors.IsNotFound(err) {
		data, err := json.Marshal(object)
		if err == nil {
			_, err = api.TryCreate(ctx, resource, head.Namespace, data)
		}
		return err
	}
	if err != nil {
		return err
	}
	head.Exists = true
	then, err := try(ctx, api, resource, live, object, head, o)
	if err != nil {
		return err
	}
	return judge(ctx, api, head, live, then)
}

// try asks the server, in a dry run, for the object as it would be.
func try(
	ctx context.Context, api API, resource string, live, object map[string]any, head *Object, o Options,
) (map[string]any, error) {
	if o.ServerSide {
		data, err := json.Marshal(object)
		if err != nil {
			return nil, err
		}
		return api.TryPatch(ctx, resource, head.Namespace, head.Name, types.ApplyPatchType, data,
			metav1.PatchOptions{FieldManager: o.FieldManager, Force: &o.ForceConflicts})
	}
	original, err := lastApplied(live)
	if err != nil {
		return nil, err
	}
	if len(original) > 0 {
		object = annotated(object)
	}
	data, err := json.Marshal(threeWay(original, object, live))
	if err != nil {
		return nil, err
	}
	return api.TryPatch(ctx, resource, head.Namespace, head.Name, types.MergePatchType, data,
		metav1.PatchOptions{FieldManager: o.FieldManager})
}

// lastAppliedKey is the annotation in which `kubectl apply` keeps what it applied last.
const lastAppliedKey = "kubectl.kubernetes.io/last-applied-configuration"

func lastApplied(live map[string]any) (map[string]any, error) {
	metadata, _ := live["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	text, _ := annotations[lastAppliedKey].(string)
	original := map[string]any{}
	if text == "" {
		return original, nil
	}
	if err := json.Unmarshal([]byte(text), &original); err != nil {
		return nil, fmt.Errorf("annotation %s: %w", lastAppliedKey, err)
	}
	return original, nil
}

// annotated returns a manifest with at least empty annotations, as kubectl apply sends it: it writes them into its own
// annotation even where the manifest has none, and so never removes all that an object has.
func annotated(object map[string]any) map[string]any {
	metadata, _ := object["metadata"].(map[string]any)
	if _, there := metadata["annotations"].(map[string]any); there {
		return object
	}
	metadata, object = maps.Clone(metadata), maps.Clone(object)
	if metadata == nil {
		metadata = map[string]any{}
	}
	metadata["annotations"], object["metadata"] = map[string]any{}, metadata
	return object
}

// threeWay returns the merge patch (RFC 7386) that kubectl apply makes for kinds such as ours: it sets each field of
// the manifest in which the object differs, and removes the fields of the manifest that was applied last that the new
// one does not have.
func threeWay(original, modified, live map[string]any) map[string]any {
	patch := map[string]any{}
	for key := range original {
		if _, kept := modified[key]; !kept {
			if _, there := live[key]; there {
				patch[key] = nil
			}
		}
	}
	for key, value := range modified {
		part, isMap := value.(map[string]any)
		have, hasMap := live[key].(map[string]any)
		switch {
		case isMap && hasMap:
			before, _ := original[key].(map[string]any)
			if inner := threeWay(before, part, have); len(inner) > 0 {
				patch[key] = inner
			}
		case !equal(value, live[key]):
			patch[key] = value
		}
	}
	return patch
}

func equal(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// visible returns what a user decides of an object: its spec, labels and annotations, without kubectl's own annotation.
func visible(object map[string]any) map[string]any {
	metadata, _ := object["metadata"].(map[string]any)
	kept := map[string]any{}
	for _, key := range []string{"labels", "annotations"} {
		if values, ok := metadata[key].(map[string]any); ok {
			own := map[string]any{}
			for name, value := range values {
				if name != lastAppliedKey {
					own[name] = value
				}
			}
			kept[key] = own
		}
	}
	out := map[string]any{"metadata": kept}
	if spec, ok := object["spec"]; ok {
		out["spec"] = spec
	}
	return out
}

package virtapi

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/clones"
	"github.com/virtkit/virtkit/pkg/vm/surface"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// there is namespace src: VM vm, which names a Secret, and a snapshot of it.
type there struct{}

func (there) Read(_ context.Context, namespace, name string, into runtime.Object) error {
	vm := v1.VirtualMachineSpec{Template: &v1.VirtualMachineInstanceTemplateSpec{}}
	volume := v1.Volume{Name: "keys"}
	volume.Secret = &v1.SecretVolumeSource{SecretName: "keys"}
	vm.Template.Spec.Volumes = []v1.Volume{volume}
	switch into := into.(type) {
	case *v1.VirtualMachine:
		if namespace == "src" && name == "vm" {
			into.Name, into.UID, into.Spec = name, "vm-uid", vm
			return nil
		}
	case *v1beta1.VirtualMachineSnapshot:
		if namespace == "src" && name == "snap" {
			into.Name, into.UID = name, "snap-uid"
			into.Status = &v1beta1.VirtualMachineSnapshotStatus{VirtualMachineSnapshotContentName: new("content")}
			return nil
		}
	case *corev1.PersistentVolumeClaim:
		if namespace == "src" && (name == "image" || name == "data") || namespace == "ns" && name == "taken" {
			into.Namespace, into.Name, into.UID = namespace, name, types.UID(name+"-uid")
			into.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("5Gi")}
			if name == "image" {
				into.Labels = map[string]string{uploads.LabelImage: "debian", uploads.LabelImageVersion: "13"}
			}
			return nil
		}
	case *v1beta1.VirtualMachineSnapshotContent:
		if namespace == "src" && name == "content" {
			into.Spec.Source.VirtualMachine = &v1beta1.VirtualMachine{Spec: vm}
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{}, name)
}

// twoSided admits clones from src by ann, who may clone from there, and by ben, who may not.
func twoSided(asked *[]authorizationv1.SubjectAccessReviewSpec) *admission {
	return &admission{
		defaults: func() surface.Defaults { return surface.Defaults{} }, referents: there{}, holders: noMACs(),
		authorize: func(_ context.Context, review *authorizationv1.SubjectAccessReview,
		) (*authorizationv1.SubjectAccessReview, error) {
			*asked = append(*asked, review.Spec)
			review.Status.Allowed = review.Spec.User == "ann" && review.Spec.ResourceAttributes.Namespace == "src"
			return review, nil
		},
	}
}

func cloneOf(kind, source string, annotations map[string]string) *clonev1beta1.VirtualMachineClone {
	text := `{"spec": {"source": {"apiGroup": "kubevirt.io", "kind": "` + kind + `", "name": "` + source + `"},
		"target": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "vm"}}}`
	out := &clonev1beta1.VirtualMachineClone{}
	if err := json.Unmarshal([]byte(text), out); err != nil {
		panic(err)
	}
	out.Name, out.Annotations = "c", annotations
	return out
}

func asking(t *testing.T, user string, object, old *clonev1beta1.VirtualMachineClone) *admissionv1.AdmissionRequest {
	t.Helper()
	raw := func(o *clonev1beta1.VirtualMachineClone) (out runtime.RawExtension) {
		if o == nil {
			return out
		}
		var err error
		if out.Raw, err = json.Marshal(o); err != nil {
			t.Fatal(err)
		}
		return out
	}
	request := &admissionv1.AdmissionRequest{
		Operation: admissionv1.Create, Namespace: "ns", Object: raw(object), OldObject: raw(old),
		UserInfo: authenticationv1.UserInfo{
			Username: user, Groups: []string{"g"}, Extra: map[string]authenticationv1.ExtraValue{"k": {"v"}},
		},
	}
	request.Kind.Kind = "VirtualMachineClone"
	if old != nil {
		request.Operation = admissionv1.Update
	}
	return request
}

// A clone from another namespace is let through for who may clone from there, of the source whose UID it has.
func TestCloneAcross(t *testing.T) {
	from := func(namespace string) map[string]string {
		return map[string]string{clones.NamespaceAnnotation: namespace}
	}
	pinned := func(uid string) map[string]string {
		return map[string]string{clones.NamespaceAnnotation: "src", clones.UIDAnnotation: uid}
	}
	const vm, snapshot = "VirtualMachine", "VirtualMachineSnapshot"
	for name, tc := range map[string]struct {
		user  string
		clone *clonev1beta1.VirtualMachineClone
		skip  bool // the mutating webhook
		code  int32
		says  string
	}{
		"a VM":                       {user: "ann", clone: cloneOf(vm, "vm", from("src"))},
		"a snapshot":                 {user: "ann", clone: cloneOf(snapshot, "snap", from("src"))},
		"another UID is overwritten": {user: "ann", clone: cloneOf(vm, "vm", pinned("other"))},
		"no right": {
			"ben", cloneOf(vm, "vm", from("src")), false, http.StatusForbidden,
			`user "ben" cannot create resource "virtualmachineclones/source" in API group "clone.kubevirt.io" in the namespace "src"`,
		},
		"no right, and not there": {
			"ben", cloneOf(vm, "no", from("src")), false, http.StatusForbidden, `user "ben" cannot create`,
		},
		"another namespace": {
			"ann", cloneOf(vm, "vm", from("bank")), false, http.StatusForbidden,
			`user "ann" cannot create resource "virtualmachineclones/source" in API group "clone.kubevirt.io" in the namespace "bank"`,
		},
		"not there": {
			"ann", cloneOf(vm, "no", from("src")), false, http.StatusUnprocessableEntity,
			"VirtualMachine src/no does not exist",
		},
		"no UID": {
			"ann", cloneOf(vm, "vm", from("src")), true, http.StatusUnprocessableEntity,
			"is not the UID of VirtualMachine src/vm",
		},
		"another UID": {
			"ann", cloneOf(vm, "vm", pinned("other")), true, http.StatusUnprocessableEntity,
			"is not the UID of VirtualMachine src/vm",
		},
		"the UID alone": {
			"ann", cloneOf(vm, "other", map[string]string{clones.UIDAnnotation: "vm-uid"}), false,
			http.StatusUnprocessableEntity, "virt-api writes it",
		},
		"its own namespace": {
			"ann", cloneOf(vm, "other", from("ns")), false, http.StatusUnprocessableEntity,
			"is the clone's own namespace",
		},
		"no namespace": {
			"ann", cloneOf(vm, "other", from("")), false, http.StatusUnprocessableEntity, clones.NamespaceAnnotation,
		},
		"the size of an image": {
			"ann",
			cloneOf(vm, "vm", map[string]string{clones.NamespaceAnnotation: "src", clones.SizeAnnotation: "6Gi"}),
			false, http.StatusUnprocessableEntity, "virtkit.io/size]: is for a clone of an image, not of a VM",
		},
		"a path": {
			"ann", cloneOf(vm, "other", from("src/../bank")), false, http.StatusUnprocessableEntity,
			clones.NamespaceAnnotation,
		},
	} {
		t.Run(name, func(t *testing.T) {
			response, asked := admitAcross(t, tc.user, tc.clone, tc.skip)
			if tc.code == 0 {
				if !response.Allowed || len(response.Warnings) != 1 ||
					!strings.Contains(response.Warnings[0], "Secret keys") {
					t.Errorf("%+v, warnings %q", response.Result, response.Warnings)
				}
				if len(asked) != 1 || asked[0].Groups[0] != "g" || asked[0].Extra["k"][0] != "v" ||
					asked[0].ResourceAttributes.Subresource != "source" ||
					asked[0].ResourceAttributes.Verb != "create" {
					t.Errorf("asked %+v", asked)
				}
				return
			}
			if response.Allowed || response.Result.Code != tc.code ||
				!strings.Contains(response.Result.Message, tc.says) {
				t.Errorf("%+v, want %d %s", response.Result, tc.code, tc.says)
			}
		})
	}
}

// admitAcross asks both webhooks, or the validating one alone, about a new clone.
func admitAcross(
	t *testing.T, user string, clone *clonev1beta1.VirtualMachineClone, skip bool,
) (*admissionv1.AdmissionResponse, []authorizationv1.SubjectAccessReviewSpec) {
	t.Helper()
	var asked []authorizationv1.SubjectAccessReviewSpec
	a := twoSided(&asked)
	request := asking(t, user, clone, nil)
	if !skip {
		mutated, err := a.paths()["/mutate/virtualmachineclones"](t.Context(), request)
		if err != nil || !mutated.Allowed {
			t.Fatalf("mutated: %+v, %v", mutated, err)
		}
		if len(mutated.Patch) > 0 {
			patch, err := jsonpatch.DecodePatch(mutated.Patch)
			if err == nil {
				request.Object.Raw, err = patch.Apply(request.Object.Raw)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	response, err := a.paths()["/validate/virtualmachineclones"](t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	return response, asked
}

// A claim with an image is copied to another namespace by who may clone from there; any other claim by nobody.
func TestImageAcross(t *testing.T) {
	of := func(source string, change func(*clonev1beta1.VirtualMachineClone)) *clonev1beta1.VirtualMachineClone {
		c := &clonev1beta1.VirtualMachineClone{}
		c.Name, c.Annotations = "c", map[string]string{clones.NamespaceAnnotation: "src"}
		c.Spec.Source = &corev1.TypedLocalObjectReference{Kind: clones.KindClaim, Name: source}
		c.Spec.Target = &corev1.TypedLocalObjectReference{Kind: clones.KindClaim, Name: "copy"}
		change(c)
		return c
	}
	same := func(*clonev1beta1.VirtualMachineClone) {}
	size := func(text string) func(*clonev1beta1.VirtualMachineClone) {
		return func(c *clonev1beta1.VirtualMachineClone) { c.Annotations[clones.SizeAnnotation] = text }
	}
	for name, tc := range map[string]struct {
		user  string
		clone *clonev1beta1.VirtualMachineClone
		says  string
	}{
		"an image":     {"ann", of("image", same), ""},
		"a larger one": {"ann", of("image", size("6Gi")), ""},
		"no right":     {"ben", of("image", same), `cannot create resource "virtualmachineclones/source"`},
		"not there":    {"ann", of("no", same), "PersistentVolumeClaim src/no does not exist"},
		"data":         {"ann", of("data", same), "claim src/data has no image"},
		"a smaller":    {"ann", of("image", size("1Gi")), "the image has 5Gi, and its copy cannot have less"},
		"no size":      {"ann", of("image", size("large")), `"large" is no size`},
		"its identity": {"ann", of("image", func(c *clonev1beta1.VirtualMachineClone) {
			c.Annotations[clones.KeepAnnotation] = "mac"
		}), "virtkit.io/keep-identity]: is for a clone of a VM, not of a claim; leave it out"},
		"its own namespace": {"ann", of("image", func(c *clonev1beta1.VirtualMachineClone) {
			c.Annotations = nil
		}), "give the new claim a dataSource"},
		"taken": {"ann", of("image", func(c *clonev1beta1.VirtualMachineClone) {
			c.Spec.Target.Name = "taken"
		}), "claim ns/taken exists"},
		"to a VM": {"ann", of("image", func(c *clonev1beta1.VirtualMachineClone) {
			c.Spec.Target.Kind = "VirtualMachine"
		}), "spec.target.kind"},
		"no target": {"ann", of("image", func(c *clonev1beta1.VirtualMachineClone) {
			c.Spec.Target = nil
		}), "spec.target: is missing: write the kind"},
		"patched": {"ann", of("image", func(c *clonev1beta1.VirtualMachineClone) {
			c.Spec.Patches = []string{"{}"}
		}), "spec.patches: is for a clone of a VM, not of a claim"},
		"a VM to a claim": {"ann", of("vm", func(c *clonev1beta1.VirtualMachineClone) {
			c.Spec.Source.Kind = "VirtualMachine"
			c.Spec.Source.APIGroup = new("kubevirt.io")
		}), "Target kind is not supported"},
	} {
		response, _ := admitAcross(t, tc.user, tc.clone, false)
		if response.Allowed != (tc.says == "") || !response.Allowed &&
			!strings.Contains(response.Result.Message, tc.says) {
			t.Errorf("%s: %+v, want %q", name, response.Result, tc.says)
		}
	}
	// Neither the source nor the size changes afterwards.
	admitted := of("image", func(c *clonev1beta1.VirtualMachineClone) {
		c.Annotations[clones.UIDAnnotation] = "image-uid"
	})
	changed := admitted.DeepCopy()
	size("9Gi")(changed)
	var asked []authorizationv1.SubjectAccessReviewSpec
	response, err := twoSided(&asked).paths()["/validate/virtualmachineclones"](t.Context(),
		asking(t, "ann", changed, admitted))
	if err != nil || response.Allowed || !strings.Contains(response.Result.Message, "cannot be changed") {
		t.Errorf("another size: %+v, %v", response, err)
	}
}

// What was decided on does not change: nobody can add, change or remove it, nor what is cloned, nor let go of the clone
// before what it has in other namespaces is gone.
func TestCloneAcrossChanges(t *testing.T) {
	admitted := cloneOf("VirtualMachine", "vm",
		map[string]string{clones.NamespaceAnnotation: "src", clones.UIDAnnotation: "vm-uid"})
	admitted.Finalizers = []string{clones.Finalizer}
	plain := cloneOf("VirtualMachine", "other", nil)
	const controller = "system:serviceaccount:" + names.Namespace + ":" + names.VirtController
	for name, tc := range map[string]struct {
		user   string
		old    *clonev1beta1.VirtualMachineClone
		change func(*clonev1beta1.VirtualMachineClone)
		says   string
	}{
		"a label": {
			"ann", admitted, func(c *clonev1beta1.VirtualMachineClone) { c.Labels = map[string]string{"a": "b"} }, "",
		},
		"the finalizer, virt-controller": {
			controller, admitted, func(c *clonev1beta1.VirtualMachineClone) { c.Finalizers = nil }, "",
		},
		"the finalizer": {
			"ann", admitted, func(c *clonev1beta1.VirtualMachineClone) { c.Finalizers = nil }, "virt-controller takes",
		},
		"both added": {"ann", plain, func(c *clonev1beta1.VirtualMachineClone) {
			c.Annotations = map[string]string{clones.NamespaceAnnotation: "src", clones.UIDAnnotation: "vm-uid"}
		}, "cannot be changed after creation"},
		"the UID added": {
			"ann", plain,
			func(c *clonev1beta1.VirtualMachineClone) { c.Annotations = map[string]string{clones.UIDAnnotation: ""} },
			"cannot be changed",
		},
		"another namespace": {
			"ann", admitted,
			func(c *clonev1beta1.VirtualMachineClone) { c.Annotations[clones.NamespaceAnnotation] = "bank" },
			"cannot be changed",
		},
		"another UID": {
			"ann", admitted,
			func(c *clonev1beta1.VirtualMachineClone) { c.Annotations[clones.UIDAnnotation] = "other" },
			"cannot be changed",
		},
		"removed": {
			controller, admitted, func(c *clonev1beta1.VirtualMachineClone) { c.Annotations = nil },
			"cannot be changed",
		},
		"keeps its MAC addresses, too": {
			"ann", admitted,
			func(c *clonev1beta1.VirtualMachineClone) { c.Annotations[clones.KeepAnnotation] = "mac" },
			"cannot be changed",
		},
		"keeps its instance-id": {
			"ann", admitted,
			func(c *clonev1beta1.VirtualMachineClone) { c.Annotations[clones.KeepAnnotation] = "instance-id" },
			"a copy in another namespace has its own",
		},
		"another source": {
			"ann", admitted, func(c *clonev1beta1.VirtualMachineClone) { c.Spec.Source.Name = "ledger" },
			"for a source in another namespace",
		},
	} {
		t.Run(name, func(t *testing.T) {
			changed := tc.old.DeepCopy()
			tc.change(changed)
			var asked []authorizationv1.SubjectAccessReviewSpec
			response, err := twoSided(&asked).paths()["/validate/virtualmachineclones"](t.Context(),
				asking(t, tc.user, changed, tc.old))
			if err != nil {
				t.Fatal(err)
			}
			if response.Allowed != (tc.says == "") ||
				tc.says != "" && !strings.Contains(response.Result.Message, tc.says) {
				t.Errorf("%+v, want %q", response.Result, tc.says)
			}
		})
	}
}

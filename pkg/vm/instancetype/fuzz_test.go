package instancetype

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"
)

// revisions is a Reader that answers every name with the same ControllerRevision.
type revisions []byte

func (r revisions) Read(_ context.Context, _, name string, into runtime.Object) error {
	revision, ok := into.(*appsv1.ControllerRevision)
	if !ok {
		return errors.New("only revisions are here")
	}
	revision.Name, revision.Data.Raw = name, r
	return nil
}

// FuzzRevision reads an instance type and a preference from a ControllerRevision with any data. It has what its kind
// says, or is an error that names the VM's field; written into a VM it makes no field of another kind; and what is
// captured of it reads back as the same.
func FuzzRevision(f *testing.F) {
	const group = `"apiVersion":"instancetype.kubevirt.io/v1beta1"`
	for _, data := range []string{
		`{` + group +
			`,"kind":"VirtualMachineInstancetype","metadata":{"name":"a"},"spec":{"cpu":{"guest":2},"memory":{"guest":"1Gi"}}}`,
		`{` + group +
			`,"kind":"VirtualMachineClusterInstancetype","spec":{"cpu":{"guest":4294967295},"memory":{"guest":"-9Ei","overcommitPercent":-1}}}`,
		`{` + group +
			`,"kind":"VirtualMachinePreference","spec":{"cpu":{"preferredCPUTopology":"spread","spreadOptions":{"ratio":0,"across":"x"}}}}`,
		`{` + group +
			`,"kind":"VirtualMachineClusterPreference","spec":{"requirements":{"cpu":{"guest":9},"memory":{"guest":"1e-9"}},"devices":{"preferredDiskBus":"x"}}}`,
		`{` + group + `,"kind":"virtualmachineinstancetypes","spec":{"cpu":{"guest":2}}}`,
		`{` + group + `,"kind":"virtualmachinepreference"}`,
		`{` + group + `,"kind":"VirtualMachineInstancetype","spec":null}`, `{` + group + `,"kind":""}`,
		`{"apiVersion":"instancetype.kubevirt.io/v1alpha1","kind":"VirtualMachineInstancetype","spec":"bm8="}`,
		`null`, `[]`, `{`, ``, `{"kind":7}`,
	} {
		f.Add([]byte(data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, role := range []Role{Instancetype, Preference} {
			vm := &v1.VirtualMachine{}
			vm.Name, vm.Namespace = "vm", "ns1"
			vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{}
			vm.Spec.Template.Spec.Volumes = []v1.Volume{{Name: "root"}}
			if role == Instancetype {
				vm.Spec.Instancetype = &v1.InstancetypeMatcher{Name: "it", RevisionName: "rev"}
			} else {
				vm.Spec.Preference = &v1.PreferenceMatcher{Name: "pref", RevisionName: "rev"}
			}
			resolved, err := Resolve(t.Context(), revisions(data), vm)
			if err != nil {
				if notFound := (&NotFoundError{}); !errors.As(err, &notFound) || !resolved.None() {
					t.Errorf("%v is no fault of the VM's, or comes with %+v", err, resolved)
				}
				continue
			}
			object := resolved.Instancetype
			if role == Preference {
				object = resolved.Preference
			}
			if object == nil || (object.Instancetype != nil) != (role == Instancetype) ||
				(object.Preference != nil) != (role == Preference) {
				t.Fatalf("as %s %q is %+v", role, data, object)
			}
			if template, _ := Expand(vm, resolved); template == nil {
				t.Errorf("%q makes no template", data)
			}
			captured, err := Capture(vm, object)
			if err != nil || !json.Valid(captured.Data.Raw) {
				t.Fatalf("capture %q: %v", data, err)
			}
			again := &Object{Role: role}
			if err := again.fromRevision(captured); err != nil {
				t.Errorf("captured of %q: %v", data, err)
				continue
			}
			before, beforeErr := json.Marshal([]any{object.Instancetype, object.Preference})
			after, afterErr := json.Marshal([]any{again.Instancetype, again.Preference})
			if diff := cmp.Diff(string(before), string(after)); diff != "" || beforeErr != nil || afterErr != nil {
				t.Errorf("captured of %q, -was +is:\n%s", data, diff)
			}
		}
	})
}

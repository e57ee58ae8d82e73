package virtapi

import (
	"encoding/json"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// FuzzAdmission sends what any user may to every webhook: none may fall over, and a patch is JSON with the
// operations that the API server takes.
func FuzzAdmission(f *testing.F) {
	machine, instance := toJSON(f, goodMachine), toJSON(f, goodInstance)
	f.Add(machine, []byte(nil))
	f.Add(machine, machine)
	f.Add(instance, []byte(nil))
	f.Add(instance, machine)
	f.Add([]byte(`{"metadata":{"finalizers":"x"},"spec":[]}`), []byte(`{"spec":null}`))
	f.Add([]byte(`null`), []byte(`[]`))
	f.Fuzz(func(t *testing.T, object, old []byte) {
		for path, admit := range hooks.paths() {
			for _, operation := range []admissionv1.Operation{admissionv1.Create, admissionv1.Update} {
				response, err := admit(t.Context(), &admissionv1.AdmissionRequest{
					Operation: operation, Object: runtime.RawExtension{Raw: object},
					OldObject: runtime.RawExtension{Raw: old},
				})
				if err != nil {
					continue
				}
				if response == nil {
					t.Fatalf("%s: no answer", path)
				}
				var patch []struct{ Op, Path string }
				if len(response.Patch) > 0 && json.Unmarshal(response.Patch, &patch) != nil {
					t.Fatalf("%s: the patch is %q", path, response.Patch)
				}
				for _, p := range patch {
					if p.Op != "add" && p.Op != "replace" || p.Path != "/spec" && p.Path != "/metadata/finalizers" {
						t.Fatalf("%s: the patch does %+v", path, p)
					}
				}
			}
		}
	})
}

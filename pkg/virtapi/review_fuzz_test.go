package virtapi

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// FuzzReview posts any JSON as an object, such as the schema would have refused, to every webhook: each answers with an
// AdmissionReview, and none falls over.
func FuzzReview(f *testing.F) {
	machine, instance := toJSON(f, goodMachine), toJSON(f, goodInstance)
	f.Add(machine, machine)
	f.Add(instance, []byte(`null`))
	for _, object := range []string{
		`{}`, `null`, `[]`, `7`, `"x"`, `{"spec":null}`, `{"spec":[]}`, `{"metadata":7,"spec":{"template":null}}`,
		`{"spec":{"runStrategy":{},"template":{"spec":{"domain":{"cpu":{"cores":-1},"memory":{"guest":"-1"},"devices":{"disks":[null,{}]}},"volumes":[null]}}}}`,
		`{"spec":{"template":{"spec":{"domain":{"devices":{"interfaces":[{"name":""},{"name":""}]}},"networks":[{"name":""}]}}}}`,
		`{"spec":{"instancetype":{"name":"a","kind":"b"},"preference":{},"dataVolumeTemplates":[{}],"template":{"spec":{"domain":{}}}}}`,
		`{"spec":{"virtualMachineTemplate":{"spec":{}},"selector":{},"replicas":-5}}`,
		`{"spec":{"cpu":{"guest":4294967295},"memory":{"guest":"9223372036854775807Ei"}}}`,
		`{"spec":{"configuration":{"migrations":{"bandwidthPerMigration":"-1"},"network":{"binding":{"":{}}}}}}`,
		`{"spec":{"target":{"apiGroup":"kubevirt.io","kind":"VirtualMachine"},"virtualMachineSnapshotName":"s","patches":["{}","["],"volumeRestoreOverrides":[{}]}}`,
		`{"spec":{"source":{"apiGroup":null},"labelFilters":["","!","a*b"],"newMacAddresses":{"":"x"},"template":{"labelFilters":[""]}}}`,
		`{"metadata":{"annotations":{"virtkit.io/ip-addresses":"{}"}},"spec":{"template":{"metadata":{"annotations":{"network.kubevirt.io/addresses":"{\"a\":[\"192.0.2.7\"]}"}},"spec":{"domain":{"devices":{"interfaces":[{"name":"a","bridge":{}}]}},"networks":[{"name":"a","multus":{"networkName":"shop/local"}}]}}}}`,
		`{"spec":{"vmiName":"vm","addedNodeSelector":{"":""}},"status":{"phase":7}}`,
	} {
		f.Add([]byte(object), []byte(`{}`))
		f.Add([]byte(object), []byte(nil))
	}
	front := newWebhooks(hooks, nil, func(string) {}).before(http.NotFoundHandler())
	f.Fuzz(func(t *testing.T, object, old []byte) {
		if !json.Valid(object) || len(old) > 0 && !json.Valid(old) {
			return // the API server has parsed it
		}
		if len(old) == 0 {
			old = nil // fuzz workers get no nil, and what is empty is no JSON
		}
		for path := range hooks.paths() {
			for _, operation := range []admissionv1.Operation{
				admissionv1.Create, admissionv1.Update, admissionv1.Delete,
			} {
				in := admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{
					UID: "1", Operation: operation, Object: runtime.RawExtension{Raw: object},
					OldObject: runtime.RawExtension{Raw: old},
				}}
				in.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"))
				body, err := json.Marshal(in)
				if err != nil {
					t.Fatal(err)
				}
				w := httptest.NewRecorder()
				front.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body)))
				var out admissionv1.AdmissionReview
				if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || w.Code != http.StatusOK ||
					out.Response == nil || out.Response.UID != "1" {
					t.Fatalf("%s %s answers %d %s, %v", operation, path, w.Code, w.Body, err)
				}
				if !out.Response.Allowed && (out.Response.Result == nil || out.Response.Result.Message == "") {
					t.Fatalf("%s %s does not say why it refuses", operation, path)
				}
			}
		}
	})
}

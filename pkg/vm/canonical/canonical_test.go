package canonical

import (
	"encoding/json"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// A strategic merge patch of a revision, as the garbage collector's, leaves its data as it was, to the byte.
func TestEncodeSurvivesPatches(t *testing.T) {
	type inner struct {
		Z     string  `json:"z"`
		A     int64   `json:"a"`
		Share float64 `json:"share"`
	}
	data, err := Encode(struct {
		Spec inner   `json:"spec"`
		Kind string  `json:"kind"`
		List []inner `json:"list"`
		None *string `json:"none"`
		Bool bool    `json:"bool"`
	}{inner{"<b> & \u2028", 1 << 53, 0.5}, "K", []inner{{"x", -1, 1e21}}, nil, true})
	if err != nil {
		t.Fatal(err)
	}
	before := &appsv1.ControllerRevision{Data: data, Revision: 1}
	before.OwnerReferences = nil
	text, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	text, err = strategicpatch.StrategicMergePatch(text, []byte(`{"metadata":{"labels":{"a":"b"}}}`), before)
	if err != nil {
		t.Fatal(err)
	}
	after := &appsv1.ControllerRevision{}
	if err := json.Unmarshal(text, after); err != nil {
		t.Fatal(err)
	}
	if string(after.Data.Raw) != string(data.Raw) {
		t.Errorf("before %s\nafter  %s", data.Raw, after.Data.Raw)
	}
}

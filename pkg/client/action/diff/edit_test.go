package diff

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Patch keeps what is stored.
func (w *world) Patch(_ context.Context, resource, namespace, name string, kind types.PatchType, patch []byte,
	dryRun bool, _ runtime.Object,
) error {
	w.patches = append(w.patches, strings.Join([]string{"store", resource, namespace, name, string(patch)}, " "))
	return nil
}

const editedVM = `apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: web, namespace: prod, uid: shown, resourceVersion: "7", labels: {a: b}}
spec: {runStrategy: Always, template: {spec: {domain: {cpu: {cores: 2}}}}}
status: {ready: true}
`

func TestEdit(t *testing.T) {
	for name, c := range map[string]struct {
		replace [2]string // of the text
		live    [2]string // what others have made of it meanwhile
		patch   string
		err     string
	}{
		"a field": {
			replace: [2]string{"cores: 2", "cores: 4"},
			patch:   `{"spec":{"template":{"spec":{"domain":{"cpu":{"cores":4}}}}}}`,
		},
		"a field less": {
			replace: [2]string{"labels: {a: b}", "labels: {}"}, patch: `{"metadata":{"labels":{"a":null}}}`,
		},
		"the server's": {replace: [2]string{"ready: true", "ready: false"}, patch: `{}`},
		"another name": {replace: [2]string{"name: web", "name: db"}, err: "cannot be changed"},
		"another version": {
			replace: [2]string{"kubevirt.io/v1", "kubevirt.io/v2"}, err: "apiVersion cannot be changed",
		},
		"no YAML":     {replace: [2]string{"spec: {", "spec: ["}, err: "yaml"},
		"two objects": {replace: [2]string{"status:", "---\n" + editedVM + "---\nstatus:"}, err: "there are 3 objects"},
		"others changed it": {
			replace: [2]string{"cores: 2", "cores: 4"}, live: [2]string{"cores: 2", "cores: 3"},
			err: "changed by others",
		},
		"another of its name": {
			replace: [2]string{"cores: 2", "cores: 4"}, live: [2]string{"uid: shown", "uid: anew"},
			err: "changed by others",
		},
		"others' status": {
			replace: [2]string{"cores: 2", "cores: 4"}, live: [2]string{"ready: true", "ready: false"},
			patch: `{"spec":{"template":{"spec":{"domain":{"cpu":{"cores":4}}}}}}`,
		},
		"others' annotation": {
			replace: [2]string{"cores: 2", "cores: 4"}, live: [2]string{"labels:", "annotations: {x: y}, labels:"},
			err: "changed by others",
		},
	} {
		after := strings.Replace(editedVM, c.replace[0], c.replace[1], 1)
		w := &world{live: read(t, strings.Replace(editedVM, c.live[0], c.live[1], 1))[0], running: true}
		w.then = read(t, strings.Replace(editedVM, "cores: 2", "cores: 4", 1))[0]
		edit, err := ReadEdit(editedVM, after)
		var object *Object
		if err == nil {
			object, err = Verdict(t.Context(), w, edit)
		}
		if err != nil || c.err != "" {
			if err == nil || c.err == "" || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: error %v, not %q", name, err, c.err)
			}
			continue
		}
		if diff := cmp.Diff([]string{string(types.MergePatchType) + " virtctl " + c.patch}, w.patches); diff != "" {
			t.Errorf("%s, -want +got\n%s", name, diff)
		}
		if !object.Running || len(object.Changes) != 1 ||
			object.Changes[0].Path != "spec.template.spec.domain.cpu.cores" {
			t.Errorf("%s: verdict %+v", name, object)
		}
		w.patches = nil
		if err := Apply(t.Context(), w, edit); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		text, ok := strings.CutPrefix(strings.Join(w.patches, "\n"), "store virtualmachines prod web ")
		var stored struct{ Metadata metav1.ObjectMeta }
		if err := json.Unmarshal([]byte(text), &stored); !ok || err != nil || stored.Metadata.ResourceVersion != "7" {
			t.Errorf("%s: stored %q, %v", name, w.patches, err)
		}
	}
}

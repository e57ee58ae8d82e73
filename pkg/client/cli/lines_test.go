package cli

import (
	"bytes"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	v1 "kubevirt.io/api/core/v1"
)

// writes are the pieces that something was written in.
type writes []string

func (w *writes) Write(data []byte) (int, error) {
	*w = append(*w, string(data))
	return len(data), nil
}

func pod(name string) unstructured.Unstructured {
	return unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name},
	}}
}

func TestLines(t *testing.T) {
	a, b := pod("a"), pod("b\n\u2028")
	const lineA = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}` + "\n"
	const lineB = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"b\n\u2028"}}` + "\n"
	users := &v1.VirtualMachineInstanceGuestOSUserList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Users"}, Items: []v1.VirtualMachineInstanceGuestOSUser{},
	}
	for name, test := range map[string]struct {
		object runtime.Object
		want   []string
	}{
		"one object": {&a, []string{lineA}},
		"a list": {
			&unstructured.UnstructuredList{Items: []unstructured.Unstructured{a, b}}, []string{lineA, lineB},
		},
		"a v1 List": {
			&corev1.List{Items: []runtime.RawExtension{{Object: &b}, {Object: &a}}}, []string{lineB, lineA},
		},
		"an empty list":       {&corev1.PodList{}, nil},
		"items of no objects": {users, []string{`{"kind":"Users","apiVersion":"v1","metadata":{},"items":[]}` + "\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			o := NewOutput()
			o.Format = FormatLines
			var got writes
			if err := o.Print(test.object, &got); err != nil {
				t.Fatal(err)
			}
			if len(got) != len(test.want) {
				t.Fatalf("got %d pieces %q, want %q", len(got), got, test.want)
			}
			for i := range got {
				if got[i] != test.want[i] {
					t.Errorf("piece %d is %q, want %q", i, got[i], test.want[i])
				}
			}
		})
	}
}

func TestLinesOfSeveral(t *testing.T) {
	a, b := pod("a"), pod("b")
	o := NewOutput()
	o.Format = FormatLines
	for _, alone := range []bool{false, true} {
		var out bytes.Buffer
		if err := o.PrintAll([]runtime.Object{&a, &b}, alone, &out); err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(out.Bytes(), []byte("\n")); n != 2 {
			t.Errorf("alone %v: got %d lines, want 2: %s", alone, n, out.String())
		}
	}
	if err := o.Print(&corev1.Pod{}, &bytes.Buffer{}); err == nil {
		t.Error("an object without kind is printed")
	}
}

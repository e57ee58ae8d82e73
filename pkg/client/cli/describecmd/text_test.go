package describecmd

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/describe"
	"github.com/virtkit/virtkit/pkg/client/action/why"
)

var update = flag.Bool("update", false, "write the golden file")

// A machine of a set says which.
func TestControlledBy(t *testing.T) {
	owned := func(kind, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Name: "db-0", Namespace: "ns",
			OwnerReferences: []metav1.OwnerReference{{Kind: kind, Name: name, Controller: new(true)}},
		}
	}
	for want, r := range map[string]*describe.Report{
		"Controlled By: VirtualMachinePool/db": {
			VM: &v1.VirtualMachine{ObjectMeta: owned("VirtualMachinePool", "db")}, Why: &why.Report{},
		},
		"Controlled By: VirtualMachineInstanceReplicaSet/web": {
			VMI: &v1.VirtualMachineInstance{ObjectMeta: owned("VirtualMachineInstanceReplicaSet", "web")},
			Why: &why.Report{},
		},
		"": {VM: &v1.VirtualMachine{}, Why: &why.Report{}},
	} {
		out := &bytes.Buffer{}
		if err := write(out, r, time.Unix(0, 0), false); err != nil {
			t.Fatal(err)
		}
		text := strings.Join(strings.Fields(out.String()), " ")
		if !strings.Contains(text, want) || want == "" && strings.Contains(text, "Controlled By") {
			t.Errorf("want %q in\n%s", want, out)
		}
	}
}

// A description has kubectl's columns: two blanks between them, and each section has widths of its own. What others
// wrote is one line of printable text.
func TestWrite(t *testing.T) {
	now := time.Unix(1000, 0).UTC()
	vm := &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{
			Name: "db", Namespace: "ns", CreationTimestamp: metav1.NewTime(now.Add(-time.Minute)),
			Labels: map[string]string{"a": "b", "tier": "two\tlines\n here"},
		},
		Spec:   v1.VirtualMachineSpec{Template: &v1.VirtualMachineInstanceTemplateSpec{}},
		Status: v1.VirtualMachineStatus{PrintableStatus: v1.VirtualMachineStatusRunning},
	}
	vm.Status.Conditions = []v1.VirtualMachineCondition{{
		Type: "Ready", Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now),
		Message: "esc\x1b  all\nis well",
	}}
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{UID: "u"}}
	vmi.Annotations = map[string]string{"interface.virtkit.io/default": "in=1024Ki"}
	vmi.Status.Phase, vmi.Status.NodeName = v1.Running, "n1"
	vmi.Status.Interfaces = []v1.VirtualMachineInstanceNetworkInterface{{Name: "default", IPs: []string{"10.0.0.1"}}}
	r := &describe.Report{
		VM: vm, VMI: vmi, Pods: []describe.Pod{{Name: "p", Phase: "Running", Node: "n1"}},
		Why: &why.Report{Summary: "it runs"},
	}
	var out bytes.Buffer
	for _, more := range []bool{false, true} {
		if err := write(&out, r, now, more); err != nil {
			t.Fatal(err)
		}
	}
	const golden = "testdata/db.txt"
	if *update {
		if err := os.WriteFile(golden, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), out.String()); diff != "" {
		t.Error(diff)
	}
}

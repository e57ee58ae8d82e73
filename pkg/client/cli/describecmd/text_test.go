package describecmd

import (
	"bytes"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/describe"
	"github.com/virtkit/virtkit/pkg/client/action/why"
)

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

package app

import (
	"fmt"
	"testing"

	tea "charm.land/bubbletea/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/store"
)

// BenchmarkFrame is what a change of one machine among ten thousand costs: the rows anew, and a frame.
func BenchmarkFrame(b *testing.B) {
	w := world(&fake{})
	var vms []v1.VirtualMachine
	for i := range 10000 {
		vms = append(vms, v1.VirtualMachine{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: fmt.Sprintf("team-%02d", i%20), Name: fmt.Sprintf("machine-%05d", i),
			},
			Status: v1.VirtualMachineStatus{PrintableStatus: "Running"},
		})
	}
	w.Machines = store.NewMachines(func() {})
	w.Machines.Load(vms, nil)
	a := New(w)
	a.Update(tea.WindowSizeMsg{Width: 160, Height: 50})
	b.ReportAllocs()
	for b.Loop() {
		a.Update(Changed{})
		a.View()
	}
}

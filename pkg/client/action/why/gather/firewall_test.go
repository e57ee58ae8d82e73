package gather

import (
	"errors"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/report/nwfilter"
)

const firewallPath = "/apis/subresources.kubevirt.io/v1/namespaces/ns/virtualmachineinstances/vm/firewall"

// What was dropped of a guest's frames is asked of its node where the guest could send as somebody else, and runs. A
// node that does not answer is no error, and who may not ask learns that.
func TestDropped(t *testing.T) {
	bridge := v1.InterfaceBindingMethod{Bridge: &v1.InterfaceBridge{}}
	masquerade := v1.InterfaceBindingMethod{Masquerade: &v1.InterfaceMasquerade{}}
	found := nwfilter.Filter{Interfaces: []nwfilter.Interface{{Name: "red"}}}
	for name, tc := range map[string]struct {
		phase   v1.VirtualMachineInstancePhase
		binding v1.InterfaceBindingMethod
		plugin  *v1.PluginBinding
		answer  any
		asked   bool
		dropped int
		unread  []string
	}{
		"on a bridge": {phase: v1.Running, binding: bridge, answer: found, asked: true, dropped: 1},
		"of a plugin": {
			phase: v1.Running, plugin: &v1.PluginBinding{Name: "l2"}, answer: found, asked: true, dropped: 1,
		},
		"behind a pod": {phase: v1.Running, binding: masquerade, answer: found},
		"not yet":      {phase: v1.Scheduled, binding: bridge, answer: found},
		"no answer": {
			phase: v1.Running, binding: bridge, asked: true,
			answer: apierrors.NewInternalError(errors.New("virt-handler does not answer")),
		},
		"not allowed": {
			phase: v1.Running, binding: bridge, asked: true, answer: clienttest.Forbidden("virtualmachineinstances"),
			unread: []string{"virtualmachineinstances/firewall"},
		},
	} {
		api := clienttest.New(t)
		vmi := v1.VirtualMachineInstance{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm", UID: "instance"},
			Status:     v1.VirtualMachineInstanceStatus{Phase: tc.phase},
		}
		vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{
			{Name: "red", InterfaceBindingMethod: tc.binding, Binding: tc.plugin},
		}
		api.Put(kv+"virtualmachineinstances/vm", vmi)
		api.Put(firewallPath, tc.answer)
		f := facts(t, api)
		if asked := len(api.Asked(firewallPath)) > 0; asked != tc.asked {
			t.Errorf("%s: asked: %v", name, asked)
		}
		if len(f.Dropped) != tc.dropped || !slices.Equal(f.Unreadable, tc.unread) {
			t.Errorf("%s: %+v, unreadable %q", name, f.Dropped, f.Unreadable)
		}
	}
}

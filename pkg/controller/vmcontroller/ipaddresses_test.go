package vmcontroller

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/virtkit/virtkit/pkg/controller/vmicontroller"
	"github.com/virtkit/virtkit/pkg/vm/identity"
	"github.com/virtkit/virtkit/pkg/vm/ipaddress"
	"github.com/virtkit/virtkit/pkg/vm/network"
)

// recordIP has an IP address of the VM's interface red recorded, as virt-controller has done before.
func (w *world) recordIP(address string) {
	w.t.Helper()
	given := map[string]ipaddress.Given{"red": {Network: "default/red-net", Addresses: []string{address}}}
	text, err := ipaddress.Encode(w.VM.Namespace, w.VM.Name, given)
	if err != nil {
		w.t.Fatal(err)
	}
	metav1.SetMetaDataAnnotation(&w.VM.ObjectMeta, ipaddress.Annotation, text)
}

// podGot gives the VMI a pod on its node, of which Multus reports an address that is to be recorded.
func (w *world) podGot(address string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "launcher", UID: "pod", Annotations: map[string]string{
		ipaddress.PodAnnotation: "red",
		network.AnnotationNetworks: fmt.Sprintf(`[{"name":"red-net","namespace":"default","interface":%q}]`,
			network.LinkOf(multus("red"))),
		network.AnnotationStatus: fmt.Sprintf(`[{"name":"default/red-net","interface":%q,"ips":[%q]}]`,
			network.LinkOf(multus("red")), address),
	}}}
	pod.Spec.NodeName = "node01"
	w.VMI.Status.NodeName, w.VMI.Status.ActivePods = "node01", map[types.UID]string{"pod": "node01"}
	w.Pods = []*corev1.Pod{pod}
	return pod
}

// addresses are those that a record has of interface red.
func addresses(object metav1.Object) string {
	return strings.Join(ipaddress.Recorded(object)["red"].Addresses, " ")
}

// A VM whose recorded address another VM's guest has starts without it, and any other with it.
func TestTakenIPs(t *testing.T) {
	w := newWorld(t, v1.RunStrategyAlways)
	w.recordIP("192.0.2.7")
	w.VMI = nil
	if made := Next(w.View).Create; made == nil || addresses(made) != "192.0.2.7" {
		t.Fatalf("it starts as %+v", made)
	}
	w.TakenIPs = []string{"red"}
	step := Next(w.View)
	if step.Create == nil || addresses(step.Create) != "" || addresses(w.VM) != "192.0.2.7" || step.IPs != "" {
		t.Errorf("it starts as %+v, and is to have %q", step.Create, step.IPs)
	}
}

// A VM keeps the address that its first pod got: its VMI has it, too, its next pod is to ask for it, and a guest that
// moves keeps it although its new pod got another.
func TestIPsStay(t *testing.T) {
	w := newWorld(t, v1.RunStrategyAlways)
	if addresses(w.VMI) != "" {
		t.Errorf("before its first start it has %s", addresses(w.VMI))
	}
	w.podGot("192.0.2.7")
	step := Next(w.View)
	if step.VMI == nil || addresses(step.VMI) != "192.0.2.7" || addresses(w.VMI) != "" {
		t.Fatalf("the VMI is to be %+v", step.VMI)
	}
	metav1.SetMetaDataAnnotation(&w.VM.ObjectMeta, ipaddress.Annotation, step.IPs)
	w.VMI = step.VMI
	if step := Next(w.View); step.IPs != "" || step.VMI != nil {
		t.Errorf("is recorded again: %s, %+v", step.IPs, step.VMI)
	}
	w.VMI.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{Completed: true}
	w.podGot("192.0.2.8")
	if step := Next(w.View); step.IPs != "" || step.VMI != nil {
		t.Errorf("the guest has moved: %s, %+v", step.IPs, step.VMI)
	}
	w.Pods = nil
	w.run()
	if got := addresses(w.VMI); got != "192.0.2.7" {
		t.Errorf("the next VMI has %q", got)
	}
	w.podGot("192.0.2.9")
	step = Next(w.View)
	i := slices.IndexFunc(step.Events, func(e vmicontroller.Event) bool { return e.Reason == reasonIPChanged })
	if i < 0 || !strings.Contains(step.Events[i].Message, "192.0.2.9 on network default/red-net, and had 192.0.2.7") {
		t.Errorf("it got another: %+v", step.Events)
	}
}

// What is not the guest's is not recorded: a pod on another node, one without a guest, one that keeps none, and what a
// VM that takes another's place finds.
func TestIPsNotRecorded(t *testing.T) {
	for name, change := range map[string]func(*world){
		"a pod on another node": func(w *world) { w.VMI.Status.NodeName = "node02" },
		"one without a guest":   func(w *world) { w.VMI.Status.ActivePods = map[types.UID]string{"pod": ""} },
		"its network keeps none": func(w *world) {
			delete(w.Pods[0].Annotations, ipaddress.PodAnnotation)
		},
		"Multus has not reported yet": func(w *world) { delete(w.Pods[0].Annotations, network.AnnotationStatus) },
		"the VM is being renamed": func(w *world) {
			metav1.SetMetaDataAnnotation(&w.VM.ObjectMeta, identity.RenamingFrom, `{"name":"old"}`)
		},
		"the VM is being deleted": func(w *world) { w.VM.DeletionTimestamp = new(at(0)) },
	} {
		w := newWorld(t, v1.RunStrategyAlways)
		w.podGot("192.0.2.7")
		change(w)
		if step := Next(w.View); step.IPs != "" {
			t.Errorf("%s: %s", name, step.IPs)
		}
	}
}

// The index has the addresses of guests that have not ended, wished and recorded ones.
func TestLivingIPs(t *testing.T) {
	vmi := bridged("default", "demo", "net", "", 0)
	vmi.Annotations = map[string]string{ipaddress.Wish: `{"nic":["192.0.2.7/24","fd00::7"]}`}
	if got := livingIPs(&vmi); !slices.Equal(got, []string{"192.0.2.7 default/net", "fd00::7 default/net"}) {
		t.Errorf("%q", got)
	}
	other := *vmi.DeepCopy()
	other.Name = "other"
	got := clash(&View{VM: testVM(v1.RunStrategyAlways)}, &ipsOf(&vmi)[0], []v1.VirtualMachineInstance{other}, ipsOf)
	if !strings.HasPrefix(got, "interface nic: 192.0.2.7 is the IP address of VirtualMachineInstance default/other") {
		t.Error(got)
	}
	vmi.Status.Phase = v1.Failed
	if got := livingIPs(&vmi); len(got) > 0 {
		t.Errorf("ended: %q", got)
	}
}

// A VM is looked at when its pod has got its addresses.
func TestPodMatters(t *testing.T) {
	w := newWorld(t, v1.RunStrategyAlways)
	pod := w.podGot("192.0.2.7")
	before := pod.DeepCopy()
	if podMatters.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: pod}) {
		t.Error("nothing has changed")
	}
	delete(before.Annotations, network.AnnotationStatus)
	if !podMatters.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: pod}) {
		t.Error("the pod has addresses now")
	}
}

package list

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
)

var born = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func vm(namespace, name string, status v1.VirtualMachinePrintableStatus) v1.VirtualMachine {
	strategy := v1.RunStrategyAlways
	guest := resource.MustParse("1Gi")
	return v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.NewTime(born)},
		Spec: v1.VirtualMachineSpec{RunStrategy: &strategy, Template: &v1.VirtualMachineInstanceTemplateSpec{
			Spec: v1.VirtualMachineInstanceSpec{
				Domain: v1.DomainSpec{Memory: &v1.Memory{Guest: &guest}, CPU: &v1.CPU{Cores: 2, Sockets: 2}},
			},
		}},
		Status: v1.VirtualMachineStatus{PrintableStatus: status, Ready: status == v1.VirtualMachineStatusRunning},
	}
}

func instance(namespace, name string, owned bool) v1.VirtualMachineInstance {
	i := v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, CreationTimestamp: metav1.NewTime(born.Add(time.Minute)),
		},
		Spec: v1.VirtualMachineInstanceSpec{
			Domain: v1.DomainSpec{Resources: v1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceMemory: resource.MustParse("256Mi"), corev1.ResourceCPU: resource.MustParse("1500m"),
			}}},
		},
		Status: v1.VirtualMachineInstanceStatus{
			Phase: v1.Running, NodeName: "node1",
			GuestOSInfo: v1.VirtualMachineInstanceGuestOSInfo{Name: "Debian", VersionID: "13"},
			Interfaces: []v1.VirtualMachineInstanceNetworkInterface{
				{IP: "10.0.0.1", IPs: []string{"10.0.0.1", "fd00::1"}},
				{IP: "10.1.0.1"},
				{},
			},
			Conditions: []v1.VirtualMachineInstanceCondition{
				{Type: v1.VirtualMachineInstanceReady, Status: corev1.ConditionTrue},
			},
		},
	}
	if owned {
		owner := vm(namespace, name, "")
		i.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&owner, v1.VirtualMachineGroupVersionKind)}
	}
	return i
}

func text(rows []Row) string {
	var b strings.Builder
	for _, r := range rows {
		b.WriteString(strings.Join(r.Cells(born.Add(time.Hour), true, true), " | ") + "\n")
	}
	return b.String()
}

func TestRows(t *testing.T) {
	vms := []v1.VirtualMachine{
		vm("b", "web", v1.VirtualMachineStatusRunning), vm("a", "off", v1.VirtualMachineStatusStopped),
		vm("a", "twin", v1.VirtualMachineStatusStopped),
	}
	// "twin" is an instance of the same name that nobody made from the VM.
	vmis := []v1.VirtualMachineInstance{
		instance("b", "web", true), instance("a", "lone", false), instance("a", "twin", false),
	}
	for kind, want := range map[Kind]string{
		VMs: `
a | off | Stopped | False | <none> | <none> | 60m | 4 | 1Gi | Always | <none> | <none>
a | twin | Stopped | False | <none> | <none> | 60m | 4 | 1Gi | Always | <none> | <none>
b | web | Running | True | node1 | 10.0.0.1,fd00::1,10.1.0.1 | 60m | 2 | 256Mi | Always | Debian 13 | <none>
`,
		VMIs: `
a | lone | Running | True | node1 | 10.0.0.1,fd00::1,10.1.0.1 | 59m | 2 | 256Mi | <none> | Debian 13 | <none>
a | twin | Running | True | node1 | 10.0.0.1,fd00::1,10.1.0.1 | 59m | 2 | 256Mi | <none> | Debian 13 | <none>
b | web | Running | True | node1 | 10.0.0.1,fd00::1,10.1.0.1 | 59m | 2 | 256Mi | <none> | Debian 13 | <none>
`,
		All: `
a | vmi/lone | Running | True | node1 | 10.0.0.1,fd00::1,10.1.0.1 | 59m | 2 | 256Mi | <none> | Debian 13 | <none>
a | off | Stopped | False | <none> | <none> | 60m | 4 | 1Gi | Always | <none> | <none>
a | twin | Stopped | False | <none> | <none> | 60m | 4 | 1Gi | Always | <none> | <none>
a | vmi/twin | Running | True | node1 | 10.0.0.1,fd00::1,10.1.0.1 | 59m | 2 | 256Mi | <none> | Debian 13 | <none>
b | web | Running | True | node1 | 10.0.0.1,fd00::1,10.1.0.1 | 60m | 2 | 256Mi | Always | Debian 13 | <none>
`,
	} {
		if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), text(Rows(kind, vms, vmis))); diff != "" {
			t.Errorf("%s, -want +got\n%s", kind, diff)
		}
	}
	if got, want := len(Headers(true, true)), len(Row{}.Cells(born, true, true)); got != want {
		t.Errorf("%d headers for %d cells", got, want)
	}
}

type fake struct {
	vms      []v1.VirtualMachine
	vmis     []v1.VirtualMachineInstance
	watchers map[string]chan *watch.FakeWatcher
	options  map[string]metav1.ListOptions
	err      error
}

func newFake() *fake {
	return &fake{
		watchers: map[string]chan *watch.FakeWatcher{
			client.VMs:  make(chan *watch.FakeWatcher, 9),
			client.VMIs: make(chan *watch.FakeWatcher, 9),
		},
		options: map[string]metav1.ListOptions{},
	}
}

func (f *fake) VMList(_ context.Context, _ string, o metav1.ListOptions) (*v1.VirtualMachineList, error) {
	f.options[client.VMs] = o
	return &v1.VirtualMachineList{Items: f.vms}, f.err
}

func (f *fake) VMIList(_ context.Context, _ string, o metav1.ListOptions) (*v1.VirtualMachineInstanceList, error) {
	f.options[client.VMIs] = o
	return &v1.VirtualMachineInstanceList{Items: f.vmis}, f.err
}

func (f *fake) Watch(_ context.Context, kind, _ string, _ metav1.ListOptions) (watch.Interface, error) {
	w := watch.NewFake()
	f.watchers[kind] <- w
	return w, nil
}

func TestSelectorsReachTheRightLists(t *testing.T) {
	f := newFake()
	for kind, want := range map[Kind]string{VMs: "x=y/", VMIs: "/x=y", All: "x=y/x=y"} {
		f.options = map[string]metav1.ListOptions{}
		if _, err := Get(t.Context(), f, Selection{Kind: kind, LabelSelector: "x=y"}); err != nil {
			t.Fatal(err)
		}
		if got := f.options[client.VMs].LabelSelector + "/" + f.options[client.VMIs].LabelSelector; got != want {
			t.Errorf("%s: got %s, want %s", kind, got, want)
		}
	}
}

func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.vms = []v1.VirtualMachine{
			vm("a", "web", v1.VirtualMachineStatusStarting), vm("a", "off", v1.VirtualMachineStatusStopped),
		}
		ctx, cancel := context.WithCancel(t.Context())
		reports := make(chan string, 9)
		ended := make(chan error, 1)
		go func() {
			ended <- Follow(ctx, f, Selection{Kind: VMs}, func(rows []Row) error {
				var lines []string
				for _, r := range rows {
					lines = append(lines, r.Name+" "+r.Status+" "+r.Node)
				}
				reports <- strings.Join(lines, ", ")
				return nil
			})
		}()
		expect := func(want string) {
			t.Helper()
			if got := <-reports; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		expect("off Stopped , web Starting ")
		vms, vmis := <-f.watchers[client.VMs], <-f.watchers[client.VMIs]
		i := instance("a", "web", true)
		vmis.Add(&i)
		expect("web Starting node1")
		same := vm("a", "web", v1.VirtualMachineStatusStarting)
		same.Labels = map[string]string{"not": "shown"}
		vms.Modify(&same)
		changed := vm("a", "web", v1.VirtualMachineStatusRunning)
		vms.Modify(&changed)
		expect("web Running node1")
		off := vm("a", "off", "")
		vms.Delete(&off)
		expect("off Deleted ")

		// A lost watch is made anew, and only what changed meanwhile is reported.
		f.vms = []v1.VirtualMachine{changed, vm("a", "new", v1.VirtualMachineStatusStopped)}
		f.vmis = []v1.VirtualMachineInstance{i}
		vms.Stop()
		expect("new Stopped ")

		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestFollowObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		versioned := func(name, version string) *v1.VirtualMachine {
			out := vm("a", name, v1.VirtualMachineStatusStopped)
			out.ResourceVersion = version
			return &out
		}
		f.vms = []v1.VirtualMachine{*versioned("web", "1"), *versioned("off", "2")}
		ctx, cancel := context.WithCancel(t.Context())
		changes := make(chan string, 9)
		ended := make(chan error, 1)
		go func() {
			ended <- FollowObjects(ctx, f, Selection{Kind: VMs}, func(o runtime.Object) error {
				vm := o.(*v1.VirtualMachine)
				changes <- fmt.Sprintf("%s %s %s %v", vm.Kind, vm.Name, vm.ResourceVersion, vm.DeletionTimestamp != nil)
				return nil
			})
		}()
		expect := func(want string) {
			t.Helper()
			if got := <-changes; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		expect("VirtualMachine off 2 false")
		expect("VirtualMachine web 1 false")
		vms, vmis := <-f.watchers[client.VMs], <-f.watchers[client.VMIs]
		i := instance("a", "web", true)
		vmis.Add(&i) // no VM: nothing is reported
		vms.Modify(versioned("web", "3"))
		expect("VirtualMachine web 3 false")
		vms.Delete(versioned("off", "4"))
		expect("VirtualMachine off 2 true")

		// A lost watch is made anew, and only what changed meanwhile is reported.
		f.vms = []v1.VirtualMachine{*versioned("web", "3"), *versioned("new", "5")}
		vms.Stop()
		expect("VirtualMachine new 5 false")

		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestFollowFailsWhenRefused(t *testing.T) {
	f := newFake()
	f.err = apierrors.NewUnauthorized("no")
	err := Follow(t.Context(), f, Selection{Kind: VMs}, func([]Row) error { return nil })
	if !apierrors.IsUnauthorized(err) {
		t.Errorf("got %v", err)
	}
}

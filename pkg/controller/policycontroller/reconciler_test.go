package policycontroller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/service/frame/frametest"
	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/network/multipolicy"
)

// access has policies, or does not know yet whether there are any.
type access struct {
	unsettled bool
	items     []multipolicy.MultiNetworkPolicy
}

func (a *access) Settled(context.Context) (bool, error) { return !a.unsettled, nil }

func (a *access) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	into.(*multipolicy.MultiNetworkPolicyList).Items = a.items
	return nil
}

func (a *access) Follow(controller.Controller, handler.MapFunc) {}

// guest is a VMI on default/red with a pod and a MAC.
func guest(name, mac string) *v1.VirtualMachineInstance {
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID(name + "-uid"), Labels: map[string]string{"app": name},
	}}
	vmi.Spec.Networks = []v1.Network{
		{Name: "red", NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: "red"}}},
	}
	vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{{Name: "red", MacAddress: mac}}
	vmi.Status.ActivePods = map[types.UID]string{types.UID(name + "-pod"): "one"}
	return vmi
}

// pod is one on default/red with an address.
func pod(namespace, name, address string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(name), Labels: map[string]string{"app": name},
		Annotations: map[string]string{
			network.AnnotationStatus: `[{"name":"default/red","ips":["` + address + `"]}]`, "other": "x",
		},
	}}
	for _, f := range change {
		f(p)
	}
	return p
}

func ofGuest(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.UID = types.UID(name + "-pod")
		p.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "kubevirt.io/v1", Kind: "VirtualMachineInstance", Name: name, UID: types.UID(name + "-uid"),
			Controller: new(true),
		}}
	}
}

func policy(name, spec string) multipolicy.MultiNetworkPolicy {
	return multipolicy.MultiNetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, Annotations: map[string]string{multipolicy.AnnotationFor: "red"},
		},
		Spec: []byte(spec),
	}
}

// newReconciler is one with VMIs, and with pods and namespaces around.
func newReconciler(t *testing.T, policies *access, vmis []client.Object, around ...client.Object) *Reconciler {
	t.Helper()
	server := frametest.New(t, []func(*runtime.Scheme) error{v1.AddToScheme}, vmis...)
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	r := &Reconciler{
		Client: server, Policies: policies, writes: frame.NewWrites(server),
		around: fake.NewClientBuilder().WithScheme(scheme).WithObjects(around...).Build(),
	}
	r.watchAround = func() error { return nil }
	return r
}

const selecting = `{"podSelector":{"matchLabels":{"app":"demo"}},"ingress":[{"from":[{"podSelector":{}},
	{"namespaceSelector":{"matchLabels":{"team":"b"}}}]}]}`

// What is written of a VMI: not before it is known whether there are policies, and with the peers of those that hold.
func TestLook(t *testing.T) {
	demo, other := guest("demo", ""), guest("other", "02:00:00:00:00:0A")
	around := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"team": "b"}}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}},
		pod("default", "client", "192.0.2.1"),
		pod("shop", "till", "192.0.2.2"),
		pod("lab", "probe", "192.0.2.3"),
		pod("default", "launcher", "192.0.2.4", ofGuest("other")),
		// One that says that it is a guest's, of which its VMI knows nothing.
		pod("default", "impostor", "192.0.2.5", ofGuest("demo"), func(p *corev1.Pod) { p.UID = "x" }),
	}
	for name, c := range map[string]struct {
		policies access
		want     string
		selects  bool
	}{
		"none": {access{}, `{"red":{"network":"default/red"}}`, false},
		"of another": {
			access{items: []multipolicy.MultiNetworkPolicy{policy("p", `{"podSelector":{"matchLabels":{"app":"x"}}}`)}},
			`{"red":{"network":"default/red"}}`, false,
		},
		"closed": {
			access{items: []multipolicy.MultiNetworkPolicy{policy("p", `{"podSelector":{}}`)}},
			`{"red":{"network":"default/red","policies":[{"name":"p","ingress":{}}]}}`, false,
		},
		"by the pod's own labels": {
			access{items: []multipolicy.MultiNetworkPolicy{
				policy("p", `{"podSelector":{"matchLabels":{"vm.kubevirt.io/name":"demo"}}}`),
			}},
			`{"red":{"network":"default/red","policies":[{"name":"p","ingress":{}}]}}`, false,
		},
		"peers": {
			access{items: []multipolicy.MultiNetworkPolicy{policy("p", selecting)}},
			`{"red":{"network":"default/red","policies":[{"name":"p","ingress":{"rules":[{"addresses":["192.0.2.1",` +
				`"192.0.2.2","192.0.2.4","192.0.2.5"],"macs":["02:00:00:00:00:0a"]}]}}]}}`, true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReconciler(t, &c.policies, []client.Object{demo.DeepCopy(), other.DeepCopy()}, around...)
			watched := false
			r.watchAround = func() error { watched = true; return nil }
			view, err := r.look(t.Context(), demo.DeepCopy())
			if err != nil {
				t.Fatal(err)
			}
			if step := Next(view); step.Text != c.want || watched != c.selects {
				t.Errorf("%s, watched: %t", step.Text, watched)
			}
			if got := len(r.concerned.all()) == 1; got != c.selects {
				t.Errorf("concerned by pods: %t", got)
			}
		})
	}
	r := newReconciler(t, &access{unsettled: true}, nil)
	if _, err := r.look(t.Context(), demo); !errors.Is(err, frame.ErrStale) {
		t.Errorf("before it is known whether there are policies: %v", err)
	}
	final := guest("demo", "")
	final.Status.Phase = v1.Succeeded
	none := guest("demo", "")
	none.Spec.Networks = nil
	for _, vmi := range []*v1.VirtualMachineInstance{final, none} {
		if _, err := r.look(t.Context(), vmi); !errors.Is(err, frame.ErrNothing) {
			t.Errorf("%+v: %v", vmi.Spec.Networks, err)
		}
	}
}

// The annotation is written once.
func TestApply(t *testing.T) {
	demo := guest("demo", "")
	r := newReconciler(t, &access{}, []client.Object{demo})
	var vmi v1.VirtualMachineInstance
	if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(demo), &vmi); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		view, err := r.look(t.Context(), &vmi)
		if err != nil {
			t.Fatal(err)
		}
		step := Next(view)
		if err := r.apply(t.Context(), view, &step); err != nil {
			t.Fatal(err)
		}
	}
	if writes := r.Client.(*frametest.Server).Writes; len(writes) != 1 || !strings.HasPrefix(writes[0], "patch ") {
		t.Errorf("%q", writes)
	}
}

// Of most pods only the name is kept, and they wake nobody.
func TestSlimPeer(t *testing.T) {
	ports := func(p *corev1.Pod) {
		p.Spec.NodeName = "one"
		p.Spec.Containers = []corev1.Container{
			{Name: "a", Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 80}}},
		}
		p.Spec.InitContainers = []corev1.Container{
			{Name: "once", Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 1}}},
			{
				Name: "beside", RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
				Ports: []corev1.ContainerPort{{Name: "web", ContainerPort: 81}},
			},
		}
	}
	slim := func(p *corev1.Pod) *corev1.Pod {
		got, err := slimPeer(p)
		if err != nil {
			t.Fatal(err)
		}
		return got.(*corev1.Pod)
	}
	kept := slim(pod("shop", "till", "192.0.2.2", ports))
	if len(kept.Annotations) != 1 || kept.Labels["app"] != "till" || kept.Spec.NodeName != "" ||
		len(kept.Spec.Containers) != 1 || len(kept.Spec.Containers[0].Ports) != 2 {
		t.Errorf("%+v", kept)
	}
	for name, change := range map[string]func(*corev1.Pod){
		"no networks":  func(p *corev1.Pod) { p.Annotations = map[string]string{"a": "b"} },
		"host network": func(p *corev1.Pod) { p.Spec.HostNetwork = true },
		"ended":        func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed },
	} {
		got := slim(pod("shop", "till", "192.0.2.2", ports, change))
		if got.Name != "till" || got.Namespace != "shop" || got.UID == "" || got.Annotations != nil ||
			got.Labels != nil || got.Spec.Containers != nil {
			t.Errorf("%s: %+v", name, got)
		}
		if changes.Create(event.CreateEvent{Object: got}) || changes.Delete(event.DeleteEvent{Object: got}) ||
			changes.Update(event.UpdateEvent{ObjectOld: got, ObjectNew: got}) {
			t.Errorf("%s: it wakes somebody", name)
		}
		if !changes.Update(event.UpdateEvent{ObjectOld: kept, ObjectNew: got}) ||
			!changes.Update(event.UpdateEvent{ObjectOld: got, ObjectNew: kept}) {
			t.Errorf("%s: nobody hears of it", name)
		}
	}
	if !changes.Create(event.CreateEvent{Object: kept}) || !changes.Delete(event.DeleteEvent{Object: kept}) ||
		changes.Update(event.UpdateEvent{ObjectOld: kept, ObjectNew: slim(pod("shop", "till", "192.0.2.2", ports))}) {
		t.Error("a pod on a network wakes nobody, or wakes without a change")
	}
}

// A change of a peer concerns the guests whose policies are for its networks.
func TestWhoIsConcerned(t *testing.T) {
	r := newReconciler(t, &access{}, []client.Object{guest("demo", ""), guest("other", "")})
	key := types.NamespacedName{Namespace: "default", Name: "demo"}
	r.concerned.set(key, []string{"default/red"})
	want := []reconcile.Request{{NamespacedName: key}}
	elsewhere := guest("x", "")
	elsewhere.Spec.Networks[0].Multus.NetworkName = "blue"
	for name, c := range map[string]struct {
		got  []reconcile.Request
		want bool
	}{
		"a pod":                    {r.ofPod(t.Context(), pod("shop", "till", "192.0.2.2")), true},
		"a guest":                  {r.ofPeer(t.Context(), guest("other", "")), true},
		"a guest elsewhere":        {r.ofPeer(t.Context(), elsewhere), false},
		"a pod that has gone away": {r.ofPod(t.Context(), &corev1.Pod{}), false},
	} {
		if c.want != slices.Equal(c.got, want) {
			t.Errorf("%s: %v", name, c.got)
		}
	}
	if got := r.ofPolicy(t.Context(), &multipolicy.MultiNetworkPolicy{}); len(got) != 2 {
		t.Errorf("the kind comes: %v", got)
	}
	p := policy("p", "{}")
	p.Namespace = "shop"
	if got := r.ofPolicy(t.Context(), &p); len(got) != 0 {
		t.Errorf("a policy elsewhere: %v", got)
	}
	before, after := guest("other", ""), guest("other", "")
	after.Status.Interfaces = []v1.VirtualMachineInstanceNetworkInterface{{Name: "red", MAC: "02:00:00:00:00:0b"}}
	if !moves.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}) ||
		moves.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: before}) {
		t.Error("a guest's MAC concerns nobody, or nothing concerns somebody")
	}
	after = guest("other", "")
	after.Status.ActivePods["another"] = "two"
	if !moves.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}) {
		t.Error("a guest's new pod concerns nobody")
	}
	r.concerned.set(key, nil)
	if len(r.concerned.all()) > 0 {
		t.Error("nothing is forgotten")
	}
}

// A guest that is to move to another network is known by its MAC on the one that it is on, too, while its own rules
// name that; its change wakes those who mean it on either.
func TestPeerThatMoves(t *testing.T) {
	before, after := guest("other", "02:00:00:00:00:0a"), guest("other", "02:00:00:00:00:0a")
	after.Spec.Networks[0].Multus.NetworkName = "blue"
	after.Annotations = map[string]string{
		network.AnnotationPolicies: `{"red":{"network":"default/blue","others":[{"network":"default/red"}]}}`,
	}
	ends := map[string]multipolicy.End{"default/red": {}, "default/green": {}}
	addGuest(ends, after)
	if len(ends["default/red"].MACs) != 1 || len(ends["default/green"].MACs) != 0 || len(ends) != 2 {
		t.Errorf("%+v", ends)
	}
	if !moves.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}) {
		t.Error("the change wakes nobody")
	}
	r := newReconciler(t, &access{}, []client.Object{after})
	key := types.NamespacedName{Namespace: "default", Name: "demo"}
	for _, on := range []string{"default/red", "default/blue"} {
		r.concerned.set(key, []string{on})
		if got := r.ofPeer(t.Context(), after); len(got) != 1 {
			t.Errorf("on %s it concerns %v", on, got)
		}
	}
}

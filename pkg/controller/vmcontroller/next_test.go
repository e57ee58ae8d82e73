package vmcontroller

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/virtkit/virtkit/pkg/vm/identity"
	"github.com/virtkit/virtkit/pkg/vm/instancetype"
	"github.com/virtkit/virtkit/pkg/vm/macaddress"
)

var update = flag.Bool("update", false, "write the golden files")

// world is a view in the making: a VM, the VMI that was made from it before it was changed, and what else is looked at.
type world struct {
	View
	t *testing.T
}

// newWorld has a VM whose guest runs, made from the template as it is.
func newWorld(t *testing.T, strategy v1.VirtualMachineRunStrategy) *world {
	vm := testVM(strategy, func(vm *v1.VirtualMachine) {
		vm.Finalizers = []string{v1.VirtualMachineControllerFinalizer}
		domain := &vm.Spec.Template.Spec.Domain
		domain.CPU.Sockets, domain.CPU.MaxSockets, domain.Memory = 1, 4,
			&v1.Memory{Guest: new(resource.MustParse("1Gi"))}
		domain.Devices.Interfaces = []v1.Interface{{
			Name: "red", InterfaceBindingMethod: v1.InterfaceBindingMethod{Bridge: &v1.InterfaceBridge{}},
		}}
		vm.Spec.Template.Spec.Networks = []v1.Network{multus("red")}
	})
	w := &world{t: t, View: View{VM: vm, Now: now}}
	w.record(macaddress.Wanted(vm, nil))
	w.run()
	return w
}

func multus(name string) v1.Network {
	return v1.Network{
		Name: name, NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: name + "-net"}},
	}
}

// run makes the VMI from the template of now.
func (w *world) run() {
	w.t.Helper()
	instance, err := Instance(w.VM, false)
	if err != nil {
		w.t.Fatal(err)
	}
	instance.UID, instance.Status.Phase = "vmi", v1.Running
	w.VMI = instance
}

// edit changes the VM's template.
func (w *world) edit(change func(*v1.VirtualMachineInstanceSpec)) {
	w.VM.Generation++
	change(&w.VM.Spec.Template.Spec)
}

// store is an instancetype.Reader with one cluster instance type, small.
type store struct{}

func (store) Read(_ context.Context, _, name string, into runtime.Object) error {
	it, ok := into.(*v1beta1.VirtualMachineClusterInstancetype)
	if !ok || name != "small" {
		return fmt.Errorf("no %T %s", into, name)
	}
	it.Name, it.UID, it.Generation = "small", "it", 1
	it.Spec.CPU.Guest, it.Spec.Memory.Guest = 2, resource.MustParse("2Gi")
	return nil
}

// typed has the VM refer to the instance type small.
func (w *world) typed() {
	w.t.Helper()
	domain := &w.VM.Spec.Template.Spec.Domain
	domain.CPU, domain.Memory = nil, nil
	w.VM.Spec.Instancetype = &v1.InstancetypeMatcher{Name: "small"}
	resolved, err := instancetype.Resolve(w.t.Context(), store{}, w.VM)
	if err != nil {
		w.t.Fatal(err)
	}
	w.Resolved = resolved
}

func (w *world) filled(name string, phase cdiv1.DataVolumePhase) {
	withTemplates(name)(w.VM)
	w.CDI = true
	if w.DataVolumes == nil {
		w.DataVolumes, w.TemplateClaims = map[string]*cdiv1.DataVolume{}, map[string]bool{}
	}
	if phase != "" {
		w.DataVolumes[name] = dataVolume(name, phase, true)
	}
}

func sockets(n uint32) func(*v1.VirtualMachineInstanceSpec) {
	return func(s *v1.VirtualMachineInstanceSpec) { s.Domain.CPU.Sockets = n }
}

func down(s *v1.VirtualMachineInstanceSpec) {
	s.Domain.Devices.Interfaces[0].State = v1.InterfaceStateLinkDown
}

func blue(s *v1.VirtualMachineInstanceSpec) {
	s.Domain.Devices.Interfaces = append(s.Domain.Devices.Interfaces, v1.Interface{
		Name: "blue", InterfaceBindingMethod: v1.InterfaceBindingMethod{Bridge: &v1.InterfaceBridge{}},
	})
	s.Networks = append(s.Networks, multus("blue"))
}

func data(s *v1.VirtualMachineInstanceSpec) {
	s.Domain.Devices.Disks = append(s.Domain.Devices.Disks, v1.Disk{
		Name: "data", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusSCSI}},
	})
	s.Volumes = append(s.Volumes, v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"},
			Hotpluggable:                      true,
		},
	}})
}

func dump(w *world) {
	w.VM.Status.MemoryDumpRequest = &v1.VirtualMachineMemoryDumpRequest{
		ClaimName: "dump", Phase: v1.MemoryDumpAssociating,
	}
}

// nexts are VMs, in the order of the golden file.
var nexts = []struct {
	name     string
	strategy v1.VirtualMachineRunStrategy
	change   func(*world)
}{
	{"new", v1.RunStrategyAlways, func(w *world) { w.VM.Finalizers, w.VM.Annotations, w.VMI = nil, nil, nil }},
	{"its MAC was never recorded", v1.RunStrategyAlways, func(w *world) {
		w.VM.Annotations = nil
		w.guestHas("02:00:00:00:00:01")
	}},
	{"its recorded MAC was not taken", v1.RunStrategyAlways, func(w *world) { w.guestHas("02:00:00:00:00:01") }},
	{"its pod has got an IP address", v1.RunStrategyAlways, func(w *world) { w.podGot("192.0.2.7") }},
	{"its pod has got another IP address", v1.RunStrategyAlways, func(w *world) {
		w.recordIP("192.0.2.6")
		w.run()
		w.podGot("192.0.2.7")
	}},
	{"to be started, and another has the IP address that it had", v1.RunStrategyAlways, func(w *world) {
		w.recordIP("192.0.2.6")
		w.VMI, w.TakenIPs = nil, []string{"red"}
	}},
	{"to be started, and its IP address is another's", v1.RunStrategyAlways, func(w *world) {
		w.VMI, w.Clash, w.ClashReason = nil, "interface red: has the IP address of VM other", reasonIPInUse
	}},
	{"to be started, and its MAC is another's", v1.RunStrategyAlways, func(w *world) {
		w.VMI, w.Clash, w.ClashReason = nil, "interface red: has the MAC of VM other", reasonMACInUse
	}},
	{"runs, and its MAC is another's", v1.RunStrategyAlways, func(w *world) {
		w.Clash, w.ClashReason = "interface red: has the MAC of VM other", reasonMACInUse
	}},
	{"stopped, and its MAC is another's", v1.RunStrategyHalted, func(w *world) {
		w.VMI, w.Clash, w.ClashReason = nil, "interface red: has the MAC of VM other", reasonMACInUse
	}},
	{"to be started", v1.RunStrategyAlways, func(w *world) { w.VMI = nil }},
	{"stopped", v1.RunStrategyHalted, func(w *world) { w.VMI = nil }},
	{"to be started paused", v1.RunStrategyHalted, func(w *world) {
		w.VMI = nil
		w.VM.Status.StateChangeRequests = []v1.VirtualMachineStateChangeRequest{{
			Action: v1.StartRequest,
			Data:   map[string]string{v1.StartRequestDataPausedKey: v1.StartRequestDataPausedTrue},
		}}
	}},
	{"of no strategy", "Sometimes", func(w *world) { w.VMI = nil }},
	{"of no strategy, and changed", "Sometimes", func(w *world) { w.edit(down) }},
	{"runs", v1.RunStrategyAlways, func(*world) {}},
	{"to be stopped", v1.RunStrategyHalted, func(*world) {}},
	{"to be stopped, and changed", v1.RunStrategyHalted, func(w *world) { w.edit(down) }},
	{"has ended", v1.RunStrategyAlways, func(w *world) { w.VMI.Status.Phase = v1.Succeeded }},
	{"backs off", v1.RunStrategyAlways, func(w *world) { w.VMI = nil; failed(2, "before", time.Minute)(w.VM) }},
	{"adopts", v1.RunStrategyAlways, func(w *world) { w.VMI.OwnerReferences, w.Adopt = nil, true }},
	{"adopts, and changed", v1.RunStrategyAlways, func(w *world) {
		w.VMI.OwnerReferences, w.Adopt = nil, true
		w.edit(down)
	}},
	{"name taken", v1.RunStrategyAlways, func(w *world) {
		other := w.VMI.DeepCopy()
		other.OwnerReferences[0].UID = "other"
		w.VMI = nil
		w.claim(other)
	}},
	{"link down", v1.RunStrategyAlways, func(w *world) { w.edit(down) }},
	{"link down while it moves", v1.RunStrategyAlways, func(w *world) {
		w.edit(down)
		w.VMI.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{StartTimestamp: new(at(0))}
	}},
	{"larger", v1.RunStrategyAlways, func(w *world) { w.edit(sockets(2)) }},
	{"larger, staged", v1.RunStrategyAlways, func(w *world) { w.edit(sockets(2)); w.Staged = true }},
	{"interface comes", v1.RunStrategyAlways, func(w *world) { w.edit(blue) }},
	{"volume comes", v1.RunStrategyAlways, func(w *world) { w.edit(data) }},
	{"all at once", v1.RunStrategyAlways, func(w *world) {
		for _, change := range []func(*v1.VirtualMachineInstanceSpec){down, sockets(2), blue, data} {
			w.edit(change)
		}
		dump(w)
	}},
	{"larger, and what needs a restart", v1.RunStrategyAlways, func(w *world) {
		w.edit(sockets(2))
		w.edit(func(s *v1.VirtualMachineInstanceSpec) { s.Hostname = "other" })
	}},
	{"memory to be dumped", v1.RunStrategyAlways, dump},
	{"of an instance type, to be started", v1.RunStrategyAlways, func(w *world) { w.VMI = nil; w.typed() }},
	{"of an instance type that is missing", v1.RunStrategyAlways, func(w *world) {
		w.VMI = nil
		w.typed()
		w.Resolved, w.Missing = instancetype.Resolved{}, missing(instancetype.Instancetype)
	}},
	{"of a preference that is missing", v1.RunStrategyAlways, func(w *world) {
		w.VMI = nil
		w.typed()
		w.Resolved, w.Missing = instancetype.Resolved{}, missing(instancetype.Preference)
	}},
	{"the same, which was said", v1.RunStrategyAlways, func(w *world) {
		w.VMI = nil
		w.typed()
		w.Resolved, w.Missing = instancetype.Resolved{}, missing(instancetype.Preference)
		w.VM.Status.Conditions = []v1.VirtualMachineCondition{{
			Type: v1.VirtualMachineFailure, Status: corev1.ConditionTrue, Message: w.Missing.Error(),
			LastTransitionTime: metav1.NewTime(now),
		}}
	}},
	{"of an instance type that conflicts", v1.RunStrategyAlways, func(w *world) {
		w.VMI = nil
		w.typed()
		w.VM.Spec.Template.Spec.Domain.CPU = &v1.CPU{Cores: 2}
	}},
	{"of an instance type no more", v1.RunStrategyAlways, func(w *world) {
		w.VM.Status.InstancetypeRef = &v1.InstancetypeStatusRef{Name: "small"}
	}},
	{"DataVolumes missing", v1.RunStrategyAlways, func(w *world) {
		w.VMI = nil
		w.filled("a", "")
		w.filled("b", cdiv1.Succeeded)
	}},
	{
		"DataVolume not filled", v1.RunStrategyAlways,
		func(w *world) { w.VMI = nil; w.filled("a", cdiv1.ImportInProgress) },
	},
	{"DataVolume filled", v1.RunStrategyAlways, func(w *world) { w.VMI = nil; w.filled("a", cdiv1.Succeeded) }},
	{"no CDI", v1.RunStrategyAlways, func(w *world) { w.VMI = nil; w.filled("a", ""); w.CDI = false }},
	{"deleted, runs", v1.RunStrategyAlways, func(w *world) { going(w.VM) }},
	{"deleted, going", v1.RunStrategyAlways, func(w *world) { going(w.VM); deleted(w.VMI) }},
	{"waits for another's place", v1.RunStrategyAlways, func(w *world) {
		w.VMI = nil
		w.VM.Annotations = map[string]string{identity.RenamingFrom: `{"name":"old","uid":"u","of":"x"}`}
	}},
	{"waits for another's place, by a mark of no sense", v1.RunStrategyAlways, func(w *world) {
		w.VMI = nil
		w.VM.Annotations = map[string]string{identity.RenamingFrom: "old"}
	}},
	{"deleted, gone", v1.RunStrategyAlways, func(w *world) { going(w.VM); w.VMI = nil }},
	{"deleted, guest stays", v1.RunStrategyAlways, func(w *world) {
		going(w.VM)
		w.VM.Finalizers = append(w.VM.Finalizers, metav1.FinalizerOrphanDependents)
	}},
}

// missing is a reference of a VM to what is not there.
func missing(role instancetype.Role) *instancetype.NotFoundError {
	return &instancetype.NotFoundError{
		Role: role, Field: field.NewPath("spec"), Detail: "there is no " + string(role), Absent: true,
	}
}

// TestNext: what is done to VMs, as testdata/next.golden has it. Nothing that is looked at is changed by looking at it.
func TestNext(t *testing.T) {
	var golden strings.Builder
	for _, tc := range nexts {
		w := newWorld(t, tc.strategy)
		tc.change(w)
		vm, instance := w.VM.DeepCopy(), w.VMI.DeepCopy()
		fmt.Fprintf(&golden, "%s\n%s\n", tc.name, inWords(t, w.View, Next(w.View)))
		if diff := cmp.Diff(vm, w.VM) + cmp.Diff(instance, w.VMI); diff != "" {
			t.Errorf("%s: what is looked at was changed:\n%s", tc.name, diff)
		}
	}
	compare(t, "testdata/next.golden", golden.String())
}

// compare holds text against a golden file.
func compare(t *testing.T, file, text string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; run with -update to write it", err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(text, "\n")); diff != "" {
		t.Errorf("not as in %s; run with -update to accept it:\n%s", file, diff)
	}
}

// A VMI that Next has changed is not changed again: the next look finds nothing to write to it.
func TestNextSettles(t *testing.T) {
	for _, tc := range nexts {
		w := newWorld(t, tc.strategy)
		tc.change(w)
		step := Next(w.View)
		if step.VMI == nil {
			continue
		}
		again := w.View
		again.VMI, again.Adopt = step.VMI, false
		if second := Next(again); second.VMI != nil {
			t.Errorf("%s: %s", tc.name, strings.Join(differences(t, step.VMI, second.VMI), "\n"))
		}
	}
}

// inWords is a step in words, each part of it a line.
func inWords(t *testing.T, view View, step Step) string {
	t.Helper()
	var out strings.Builder
	say := func(format string, a ...any) { fmt.Fprintf(&out, "  "+format+"\n", a...) }
	if step.Invalid != nil {
		say("invalid: %v", step.Invalid)
	}
	if step.AddFinalizer {
		say("add the finalizer")
	}
	if step.MACs != "" {
		say("MAC addresses %s", step.MACs)
	}
	if step.IPs != "" {
		say("IP addresses %s", step.IPs)
	}
	for _, revision := range step.Revisions {
		say("keep revision %s", revision.Name)
	}
	if step.VMI != nil {
		for _, line := range differences(t, view.VMI, step.VMI) {
			say("VMI: %s", line)
		}
	}
	for _, event := range step.Events {
		say("event %s %s: %s", event.Type, event.Reason, event.Message)
	}
	if step.Strategy != "" {
		say("strategy %s", step.Strategy)
	}
	for _, template := range step.DataVolumes {
		say("make DataVolume %s", template.Name)
	}
	if step.Create != nil {
		cpu := step.Create.Spec.Domain.CPU
		say("make the VMI, of %d sockets and %d cores", cpu.Sockets, cpu.Cores)
	}
	if step.Status {
		status := Status(step.After, step.Decision)
		say("status %s", status.PrintableStatus)
		if ref := status.InstancetypeRef; ref != nil {
			say("status.instancetypeRef %s, revision %s", ref.Name, ref.ControllerRevisionRef.Name)
		}
		for _, c := range status.Conditions {
			if c.Type == v1.VirtualMachineFailure || c.Type == v1.VirtualMachineRestartRequired {
				say("%s %s: %s", c.Type, c.Reason, c.Message)
			}
		}
	}
	if step.Delete {
		say("delete the VMI")
	}
	if step.RemoveFinalizer {
		say("remove the finalizer")
	}
	if step.RequeueAfter > 0 {
		say("again in %s", step.RequeueAfter)
	}
	return out.String()
}

// differences are the fields that differ between two VMIs, by path.
func differences(t *testing.T, a, b *v1.VirtualMachineInstance) []string {
	t.Helper()
	flat := func(instance *v1.VirtualMachineInstance) map[string]string {
		text, err := json.Marshal(instance)
		if err != nil {
			t.Fatal(err)
		}
		var tree any
		if err := json.Unmarshal(text, &tree); err != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		flatten(tree, "", out)
		return out
	}
	before, after := flat(a), flat(b)
	var out []string
	for path, is := range after {
		if was, ok := before[path]; !ok || was != is {
			out = append(out, path+" = "+is)
		}
	}
	for path := range before {
		if _, ok := after[path]; !ok {
			out = append(out, path+" gone")
		}
	}
	slices.Sort(out)
	return out
}

func flatten(tree any, path string, into map[string]string) {
	switch value := reflect.ValueOf(tree); value.Kind() {
	case reflect.Map:
		for _, key := range value.MapKeys() {
			flatten(value.MapIndex(key).Interface(), strings.TrimPrefix(path+"."+key.String(), "."), into)
		}
	case reflect.Slice:
		for i := range value.Len() {
			flatten(value.Index(i).Interface(), fmt.Sprintf("%s[%d]", path, i), into)
		}
	default:
		into[path] = fmt.Sprint(tree)
	}
}

package rename

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/vm/identity"
	"github.com/virtkit/virtkit/pkg/vm/ipaddress"
	"github.com/virtkit/virtkit/pkg/vm/macaddress"
	"github.com/virtkit/virtkit/pkg/vm/reserved"
	"github.com/virtkit/virtkit/pkg/vm/savedmemory"
	"github.com/virtkit/virtkit/pkg/vm/vmstate"
)

var request = Request{Namespace: "ns", Name: "old", To: "new"}

func halted(name string, change ...func(*v1.VirtualMachine)) *v1.VirtualMachine {
	strategy := v1.RunStrategyHalted
	vm := &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1"},
	}
	vm.Spec.RunStrategy = &strategy
	vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{}
	for _, c := range change {
		c(vm)
	}
	return vm
}

func going(vm *v1.VirtualMachine) { vm.DeletionTimestamp = &metav1.Time{} }

func marked(to string) func(*v1.VirtualMachine) {
	return func(vm *v1.VirtualMachine) {
		metav1.SetMetaDataAnnotation(&vm.ObjectMeta, identity.RenamedTo, to)
	}
}

// waiting is the VM that waits for old's place.
func waiting(t *testing.T, old *v1.VirtualMachine, change ...func(*v1.VirtualMachine)) *v1.VirtualMachine {
	t.Helper()
	vm, err := Successor(old, request)
	if err != nil {
		t.Fatal(err)
	}
	vm.UID = "uid-new"
	for _, c := range change {
		c(vm)
	}
	return vm
}

func owners(uids ...types.UID) []metav1.OwnerReference {
	var out []metav1.OwnerReference
	for _, uid := range uids {
		out = append(out, metav1.OwnerReference{Kind: "VirtualMachine", UID: uid})
	}
	return out
}

func disk(resource Resource, uids ...types.UID) Dependent {
	return Dependent{
		Resource: resource, Meta: metav1.ObjectMeta{Namespace: "ns", Name: "disk", OwnerReferences: owners(uids...)},
	}
}

func state(of string, uids ...types.UID) Dependent {
	d := disk(Claims, uids...)
	d.Meta.Name, d.Meta.Labels = "state", map[string]string{vmstate.Prefix: of}
	return d
}

func TestNext(t *testing.T) {
	const o, n = types.UID("uid-old"), types.UID("uid-new")
	old, mine := halted("old"), halted("old", marked("new"))
	heir := waiting(t, old)
	running, stopping := &v1.VirtualMachineInstance{}, &v1.VirtualMachineInstance{}
	stopping.DeletionTimestamp = &metav1.Time{}
	asked := func(actions ...v1.StateChangeRequestAction) *v1.VirtualMachine {
		return halted("old", func(vm *v1.VirtualMachine) {
			*vm.Spec.RunStrategy = v1.RunStrategyManual
			for _, a := range actions {
				vm.Status.StateChangeRequests = append(vm.Status.StateChangeRequests,
					v1.VirtualMachineStateChangeRequest{Action: a})
			}
		})
	}
	always := halted("old", func(vm *v1.VirtualMachine) { *vm.Spec.RunStrategy = v1.RunStrategyAlways })
	manual := halted("old", func(vm *v1.VirtualMachine) { *vm.Spec.RunStrategy = v1.RunStrategyManual })
	settled := disk(DataVolumes, n)
	settled.Meta.OwnerReferences[0].Controller = new(true)
	for name, test := range map[string]struct {
		view    View
		want    Kind
		refusal string
	}{
		"nothing is there":        {View{}, "", "virtualmachines.kubevirt.io \"old\" not found in namespace \"ns\""},
		"begin":                   {View{Old: old}, Mark, ""},
		"killed when marked":      {View{Old: mine}, Create, ""},
		"the heir is there":       {View{Old: mine, New: heir}, Remove, ""},
		"the mark was taken away": {View{Old: old, New: heir}, Mark, ""},
		"a claim is not lent":     {View{Old: mine, New: heir, Dependents: []Dependent{disk(Claims, o)}}, Lend, ""},
		"all is lent": {
			View{Old: mine, New: heir, Dependents: []Dependent{disk(Claims, o, n), state("old", o, n), state("old")}},
			Remove, "",
		},
		"what must not be changed": {
			View{
				Old: mine, New: heir,
				Dependents: []Dependent{{Resource: Revisions, Meta: disk(Revisions, o).Meta, Fixed: true}},
			},
			Remove, "",
		},
		"changed since": {View{Old: halted("old", marked("new"), func(vm *v1.VirtualMachine) {
			vm.Spec.Template.Spec.Hostname = "other"
		}), New: heir}, Discard, ""},
		"the discarded one goes":                 {View{Old: mine, New: waiting(t, old, going)}, Wait, ""},
		"old goes":                               {View{Old: halted("old", marked("new"), going), New: heir}, Wait, ""},
		"old goes with an heir that has no mark": {View{Old: halted("old", going), New: heir}, Wait, ""},
		"old is gone": {
			View{New: heir, Dependents: []Dependent{state("old", n)}}, Adopt, "",
		},
		"old was the controller": {View{New: heir, Dependents: []Dependent{disk(DataVolumes, n)}}, Adopt, ""},
		"the collector is late":  {View{New: heir, Dependents: []Dependent{disk(Claims, o, n)}}, Adopt, ""},
		"a claim that was given": {View{New: heir, Dependents: []Dependent{state("old")}}, Adopt, ""},
		"and another VM has the name": {
			View{
				New: heir, Old: halted("old", func(vm *v1.VirtualMachine) { vm.UID = "later" }),
				Dependents: []Dependent{state("old")},
			},
			Finish, "",
		},
		"all is settled": {View{New: heir, Dependents: []Dependent{settled, state("new", n)}}, Finish, ""},
		"done": {
			View{
				New: halted("new", func(vm *v1.VirtualMachine) {
					vm.Annotations = map[string]string{identity.RenamedFrom: "old"}
				}),
			},
			Done, "",
		},

		"taken":              {View{Old: old, New: halted("new")}, "", "VM ns/new exists already"},
		"taken, and no old":  {View{New: halted("new")}, "", `machines.kubevirt.io "old" not found in namespace "ns"`},
		"taken by another's": {View{Old: old, New: waiting(t, halted("third"))}, "", "takes the place of VM third"},
		"name is going":      {View{Old: old, New: halted("new", going)}, "", "VM ns/new is being deleted"},
		"marks of no sense": {View{Old: old, New: halted("new", func(vm *v1.VirtualMachine) {
			vm.Annotations = map[string]string{identity.RenamingFrom: "x"}
		})}, "", "annotation virtkit.io/renaming-from"},
		"lone instance":         {View{Old: old, NewRuns: &v1.VirtualMachineInstance{}}, "", "VMI ns/new exists"},
		"instance of the heir":  {View{New: heir, NewRuns: &v1.VirtualMachineInstance{}}, "", "VMI ns/new exists"},
		"is being deleted":      {View{Old: halted("old", going)}, "", "VM ns/old is being deleted"},
		"goes to another":       {View{Old: halted("old", marked("third"))}, "", "is being renamed to third"},
		"another waits":         {View{Old: old, Rivals: []string{"third"}}, "", "is being renamed to third, too"},
		"runs":                  {View{Old: manual, OldRuns: running}, "", "stop it first: `virtctl stop old -n ns`"},
		"stops":                 {View{Old: old, OldRuns: running}, "", "`virtctl wait old --for=stopped -n ns`"},
		"was started meanwhile": {View{Old: mine, New: heir, OldRuns: running}, "", "is being stopped"},
		"Manual":                {View{Old: manual}, Mark, ""},
		"Manual stops": {
			View{Old: manual, OldRuns: stopping},
			"",
			"VM ns/old is being stopped; wait until it is: `virtctl wait old --for=stopped -n ns`",
		},
		"Manual is to stop":  {View{Old: asked(v1.StopRequest), OldRuns: running}, "", "is being stopped; wait"},
		"Manual has stopped": {View{Old: asked(v1.StopRequest)}, "", "is being stopped; wait"},
		"Manual restarts": {
			View{Old: asked(v1.StopRequest, v1.StartRequest), OldRuns: stopping}, "", "stop it first",
		},
		"Always restarts": {View{Old: always, OldRuns: stopping}, "", "stop it first"},
	} {
		t.Run(name, func(t *testing.T) {
			test.view.Request = request
			got := Next(test.view)
			switch {
			case test.refusal == "" && (got.Refusal != nil || got.Kind != test.want):
				t.Errorf("%s, %v; want %s", got.Kind, got.Refusal, test.want)
			case test.refusal != "" &&
				(got.Refusal == nil || got.Kind != "" || !strings.Contains(got.Refusal.Error(), test.refusal)):
				t.Errorf("%s, %v; want refusal %q", got.Kind, got.Refusal, test.refusal)
			}
		})
	}
	if refusal := Next(View{Request: request}).Refusal; !errors.Is(refusal, action.ErrNotFound) {
		t.Errorf("%v is not ErrNotFound", refusal)
	}
}

func TestRefuse(t *testing.T) {
	strategy := func(s v1.VirtualMachineRunStrategy) func(*v1.VirtualMachine) {
		return func(vm *v1.VirtualMachine) { vm.Spec.RunStrategy = &s }
	}
	for want, change := range map[string]func(*v1.VirtualMachine){
		"run strategy Always, with which it starts by itself": strategy(v1.RunStrategyAlways),
		"run strategy RerunOnFailure":                         strategy(v1.RunStrategyRerunOnFailure),
		"run strategy Once":                                   strategy(v1.RunStrategyOnce),
		"belongs to VirtualMachinePool web": func(vm *v1.VirtualMachine) {
			vm.OwnerReferences = []metav1.OwnerReference{
				{Kind: "VirtualMachinePool", Name: "web", Controller: new(true)},
			}
		},
		"was asked to start": func(vm *v1.VirtualMachine) {
			vm.Status.StateChangeRequests = []v1.VirtualMachineStateChangeRequest{{Action: v1.StartRequest}}
		},
		"volumes that are being plugged": func(vm *v1.VirtualMachine) {
			vm.Status.VolumeRequests = []v1.VirtualMachineVolumeRequest{{}}
		},
		"part of snapshot s": func(vm *v1.VirtualMachine) { vm.Status.SnapshotInProgress = new("s") },
		"restored by r":      func(vm *v1.VirtualMachine) { vm.Status.RestoreInProgress = new("r") },
		"goes on from the memory of a snapshot": func(vm *v1.VirtualMachine) {
			metav1.SetMetaDataAnnotation(&vm.ObjectMeta, savedmemory.ResumeAnnotation, `{"claim":"m","restore":"1"}`)
		},
		"disks that a migration has brought": func(vm *v1.VirtualMachine) {
			metav1.SetMetaDataAnnotation(&vm.ObjectMeta, reserved.DisksBrought, `{"migration":"m","disks":[]}`)
		},
		"no spec.template": func(vm *v1.VirtualMachine) { vm.Spec.Template = nil },
	} {
		err := Refuse(halted("old", change), nil, nil)
		var refused *RefusedError
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := Refuse(halted("old", func(vm *v1.VirtualMachine) { vm.OwnerReferences = owners("app") }),
		nil, nil); err != nil {
		t.Errorf("an owner that is no controller: %v", err)
	}
}

func TestSuccessor(t *testing.T) {
	old := halted("old", marked("new"), func(vm *v1.VirtualMachine) {
		*vm.Spec.RunStrategy = v1.RunStrategyManual
		vm.Labels = map[string]string{"app": "web"}
		vm.Finalizers = []string{v1.VirtualMachineControllerFinalizer}
		vm.Annotations[corev1.LastAppliedConfigAnnotation] = `{"metadata":{"name":"old"},"spec":{}}`
		vm.Annotations["description"] = "mine"
		vm.Annotations[macaddress.Annotation] = `{"vm":"` + vm.Namespace +
			`/old","interfaces":{"a":"02:00:00:00:00:01"}}`
		vm.Annotations[ipaddress.Annotation] = `{"vm":"` + vm.Namespace +
			`/old","interfaces":{"a":{"network":"ns/net","addresses":["192.0.2.7"]}}}`
		vm.Spec.Instancetype = &v1.InstancetypeMatcher{Name: "small"}
		vm.Spec.Preference = &v1.PreferenceMatcher{Name: "fedora", RevisionName: "chosen"}
		vm.Status.InstancetypeRef = &v1.InstancetypeStatusRef{
			Name: "small", ControllerRevisionRef: &v1.ControllerRevisionRef{Name: "old-small"},
		}
		vm.Status.PreferenceRef = &v1.InstancetypeStatusRef{
			Name: "fedora", ControllerRevisionRef: &v1.ControllerRevisionRef{Name: "old-fedora"},
		}
	})
	before := old.DeepCopy()
	vm := waiting(t, old)
	if vm.Name != "new" || vm.Labels["app"] != "web" || len(vm.Finalizers) > 0 ||
		vm.Annotations["description"] != "mine" || vm.Annotations[identity.RenamedTo] != "" {
		t.Errorf("%+v", vm.ObjectMeta)
	}
	if got := vm.Annotations[corev1.LastAppliedConfigAnnotation]; got != `{"metadata":{"name":"new"},"spec":{}}`+"\n" {
		t.Errorf("last applied: %s", got)
	}
	if *vm.Spec.RunStrategy != v1.RunStrategyHalted || vm.Spec.Instancetype.RevisionName != "old-small" ||
		vm.Spec.Preference.RevisionName != "chosen" {
		t.Errorf("%+v", vm.Spec)
	}
	renaming, err := identity.RenamingOf(vm)
	if err != nil || renaming.Name != "old" || renaming.UID != "uid-old" ||
		renaming.RunStrategy != v1.RunStrategyManual {
		t.Errorf("%+v, %v", renaming, err)
	}
	if macs := macaddress.Recorded(vm); macs["a"] != "02:00:00:00:00:01" {
		t.Errorf("MAC addresses: %v, %q", macs, vm.Annotations[macaddress.Annotation])
	}
	if ips := ipaddress.Recorded(vm)["a"].Addresses; len(ips) != 1 || ips[0] != "192.0.2.7" {
		t.Errorf("IP addresses: %v, %q", ips, vm.Annotations[ipaddress.Annotation])
	}
	template := vm.Spec.Template
	if template.Spec.Domain.Firmware.UUID != identity.UUID("old") || template.Spec.Hostname != "old" ||
		template.ObjectMeta.Annotations[identity.KnownAs] != "old" {
		t.Errorf("%+v", template)
	}
	if old.Spec.Template.Spec.Domain.Firmware != nil ||
		old.Annotations["description"] != before.Annotations["description"] ||
		*old.Spec.RunStrategy != v1.RunStrategyManual {
		t.Error("the old VM was changed")
	}

	// What the guest has by itself stays, also when it is renamed again; with its first name it needs none but that.
	vm.Spec.Template.Spec.Domain.Firmware.UUID = "own"
	again, err := Successor(vm, Request{Namespace: "ns", Name: "new", To: "third", Hostname: "host"})
	if err != nil {
		t.Fatal(err)
	}
	template = again.Spec.Template
	if template.Spec.Domain.Firmware.UUID != "own" || template.Spec.Hostname != "host" ||
		template.ObjectMeta.Annotations[identity.KnownAs] != "old" {
		t.Errorf("again: %+v", template)
	}
	back, err := Successor(again, Request{Namespace: "ns", Name: "third", To: "old"})
	if err != nil {
		t.Fatal(err)
	}
	if known, has := back.Spec.Template.ObjectMeta.Annotations[identity.KnownAs]; has {
		t.Errorf("back under its own name it is known as %q", known)
	}
}

func TestAdopt(t *testing.T) {
	successor := waiting(t, halted("old"))
	dv := disk(DataVolumes, "uid-old", "uid-new")
	dv.Meta.Labels = map[string]string{v1.CreatedByLabel: "uid-old"}
	changes := adopt([]Dependent{dv, state("old", "uid-new"), state("old", "uid-other")}, "old", "uid-old", successor,
		true)
	if len(changes) != 2 {
		t.Fatalf("%+v", changes)
	}
	if c := changes[0]; len(c.Owners) != 1 || c.Owners[0].UID != "uid-new" || !controls(c.Owners[0]) ||
		c.Labels[v1.CreatedByLabel] != "uid-new" {
		t.Errorf("%+v", c)
	}
	if c := changes[1]; len(c.Owners) != 1 || controls(c.Owners[0]) || c.Labels[vmstate.Prefix] != "new" {
		t.Errorf("%+v", c)
	}
}

func TestNotes(t *testing.T) {
	old := halted("old", func(vm *v1.VirtualMachine) {
		vm.Status.MemoryDumpRequest = &v1.VirtualMachineMemoryDumpRequest{ClaimName: "dump"}
	})
	fixed := disk(Revisions, "uid-old")
	fixed.Fixed = true
	dependents := []Dependent{fixed, disk(Claims, "uid-old")}
	got := notes(request, old, dependents, []string{"web", "ssh"}, []string{"s1", "s2"})
	for _, want := range []string{
		"stay those of VM old, also after an undo: s1, s2;", "web, ssh", "host name stays old", "claim dump",
		"controllerrevisions/disk",
	} {
		if !slices.ContainsFunc(got, func(note string) bool { return strings.Contains(note, want) }) {
			t.Errorf("no note of %q: %q", want, got)
		}
	}
	if len(got) != 5 {
		t.Errorf("%q", got)
	}
	with := request
	with.Hostname = "web"
	if got := notes(with, halted("old"), nil, nil, nil); len(got) > 0 {
		t.Errorf("%q", got)
	}
}

func secretNamed(name string) *corev1.LocalObjectReference {
	return &corev1.LocalObjectReference{Name: name}
}

//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action/diff"
	"github.com/virtkit/virtkit/pkg/vm/rollout"
)

// edit is a change of a VM that runs, what `virtctl diff` is to say of it, and what the guest is to have then.
type edit struct {
	name   string
	change func(*v1.VirtualMachine)
	// want are the effects by path. A path stands for all that is below it; those of the template's spec begin there.
	want map[string]rollout.Effect
	// has says what the guest that runs lacks of it; nil is for what leaves its instance as it was.
	has func(*v1.VirtualMachineInstance) string
	// named is what RestartRequired names; empty is what restart is said of.
	named string
	// keep leaves the change, else it is taken back, which is to wait for nothing.
	keep bool
}

const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// manifestOf is what a user would apply for a VM to be so.
func manifestOf(t *testing.T, vm *v1.VirtualMachine) string {
	t.Helper()
	data, err := json.Marshal(map[string]any{
		"apiVersion": v1.GroupVersion.String(), "kind": "VirtualMachine",
		"metadata": map[string]any{"name": vm.Name, "namespace": vm.Namespace, "labels": vm.Labels}, "spec": vm.Spec,
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// store changes the VM as `kubectl apply` would, and returns it as it is then.
func (g *guest) store(t *testing.T, change func(*v1.VirtualMachine)) *v1.VirtualMachine {
	t.Helper()
	var vm *v1.VirtualMachine
	eventually(t, 30*time.Second, "the VM is changed", func() string {
		vm = g.vm(t)
		change(vm)
		if vm.Annotations == nil {
			vm.Annotations = map[string]string{}
		}
		vm.Annotations[lastApplied] = manifestOf(t, vm)
		err := g.Client.Update(t.Context(), vm)
		switch {
		case apierrors.IsConflict(err):
			return err.Error()
		case err != nil:
			t.Fatal(err)
		}
		return ""
	})
	return vm
}

// verdicts asks `virtctl diff` what a change of the VM would do.
func (g *guest) verdicts(t *testing.T, change func(*v1.VirtualMachine)) []diff.Change {
	t.Helper()
	vm := g.vm(t)
	change(vm)
	stdout, stderr, err := g.Virtctl(t.Context(), strings.NewReader(manifestOf(t, vm)), "-n", g.ns, "diff", "-f", "-",
		"-o", "json")
	var report diff.Report
	if decodeErr := json.Unmarshal([]byte(stdout), &report); decodeErr != nil || len(report.Objects) != 1 ||
		stderr != "" {
		t.Fatalf("virtctl diff: %v %v\n%s%s", err, decodeErr, stdout, stderr)
	}
	if !report.Objects[0].Running {
		t.Fatal("virtctl diff sees no guest")
	}
	return report.Objects[0].Changes
}

// try asks for the verdict on an edit, makes it, and compares what happens.
func (g *guest) try(t *testing.T, e edit) {
	t.Helper()
	g.store(t, func(*v1.VirtualMachine) {}) // what is taken out of the manifest later was in it
	before, instance := g.vm(t), g.vmi(t)
	said := g.verdicts(t, e.change)
	g.compare(t, e, said)
	changed := g.store(t, e.change)
	g.comesTrue(t, e, said, changed.Generation, instance)
	if e.keep || t.Failed() {
		return
	}
	back := func(vm *v1.VirtualMachine) { vm.Labels, vm.Spec = before.Labels, *before.Spec.DeepCopy() }
	said = g.verdicts(t, back)
	for _, c := range said {
		if c.Effect != rollout.Live && !strings.HasPrefix(c.Path, "spec.template.metadata") {
			t.Errorf("taken back, %s is said to be %s: %s", c.Path, c.Effect, c.Note)
		}
	}
	changed = g.store(t, back)
	g.comesTrue(t, edit{}, nil, changed.Generation, instance)
}

// compare holds what is said against what is wanted.
func (g *guest) compare(t *testing.T, e edit, said []diff.Change) {
	t.Helper()
	met := map[string]bool{}
	for _, c := range said {
		var want rollout.Effect
		for path, effect := range e.want {
			if full := fullPath(path); c.Path == full || strings.HasPrefix(c.Path, full+".") ||
				strings.HasPrefix(c.Path, full+"[") {
				want, met[path] = effect, true
			}
		}
		if c.Effect != want {
			t.Errorf("%s is said to be %s (%s), want %q", c.Path, c.Effect, c.Note, want)
		}
	}
	for path := range e.want {
		if !met[path] {
			t.Errorf("nothing is said of %s: %+v", path, said)
		}
	}
}

func fullPath(path string) string {
	if strings.HasPrefix(path, "spec.") || strings.HasPrefix(path, "metadata.") {
		return path
	}
	return "spec.template.spec." + path
}

// comesTrue waits until virt-controller has seen the change and the guest and the VM's conditions are as was said.
func (g *guest) comesTrue(
	t *testing.T, e edit, said []diff.Change, generation int64, instance *v1.VirtualMachineInstance,
) {
	t.Helper()
	var waits []string
	for _, c := range said {
		if c.Effect == rollout.Restart && !strings.HasPrefix(c.Path, "spec.template.metadata") {
			waits = append(waits, c.Path)
		}
	}
	if e.named != "" {
		waits = []string{fullPath(e.named)}
	}
	eventually(t, bootTime, "what was said comes true", func() string {
		vm, vmi := g.vm(t), g.vmi(t)
		message := g.restartMessage(t)
		switch {
		case vmi == nil || vmi.UID != instance.UID:
			t.Fatal("the guest was started anew")
		case vm.Status.DesiredGeneration < generation:
			return "virt-controller has not seen the change"
		case (message != "") != (len(waits) > 0):
			return fmt.Sprintf("RestartRequired is %q, and restart was said of %v", message, waits)
		case slices.ContainsFunc(waits, func(path string) bool { return !mentions(message, path) }):
			return fmt.Sprintf("RestartRequired is %q, which does not name all of %v", message, waits)
		case e.has != nil:
			return e.has(vmi)
		case !equality.Semantic.DeepEqual(vmi.Spec, instance.Spec):
			return fmt.Sprintf("the instance was changed: %+v", vmi.Spec)
		}
		return ""
	})
}

// mentions reports whether a condition's message names a field, one above it, or the volume, disk or interface that it
// is of.
func mentions(message, path string) bool {
	if _, rest, ok := strings.Cut(path, "["); ok {
		name, _, _ := strings.Cut(rest, "]")
		return strings.Contains(message, "["+name+"]")
	}
	for path != "spec.template.spec" && path != "spec.template.spec.domain" && path != "" {
		if strings.Contains(message, path) {
			return true
		}
		path = path[:max(strings.LastIndexByte(path, '.'), 0)]
	}
	return false
}

// of makes an edit of the template's spec.
func of(change func(*v1.VirtualMachineInstanceSpec)) func(*v1.VirtualMachine) {
	return func(vm *v1.VirtualMachine) { change(&vm.Spec.Template.Spec) }
}

var (
	limited = map[string]string{
		"disk.virtkit.io/root": "bps=50Mi,iops=500", "interface.virtkit.io/default": "in=10Mi",
	}
	limitedLess = map[string]string{"disk.virtkit.io/root": "write-bps=20Mi"}
)

func limits(annotations map[string]string) func(*v1.VirtualMachine) {
	return func(vm *v1.VirtualMachine) { vm.Spec.Template.ObjectMeta.Annotations = annotations }
}

func hasLimits(want map[string]string) func(*v1.VirtualMachineInstance) string {
	return func(vmi *v1.VirtualMachineInstance) string {
		for key := range limited {
			if vmi.Annotations[key] != want[key] {
				return fmt.Sprintf("the instance has %v", vmi.Annotations)
			}
		}
		return ""
	}
}

func sockets(n uint32) func(*v1.VirtualMachine) {
	return of(func(spec *v1.VirtualMachineInstanceSpec) { spec.Domain.CPU.Sockets = n })
}

func memoryOf(amount string) func(*v1.VirtualMachine) {
	return of(func(spec *v1.VirtualMachineInstanceSpec) { spec.Domain.Memory.Guest = ptr(resource.MustParse(amount)) })
}

func hasSockets(n uint32) func(*v1.VirtualMachineInstance) string {
	return func(vmi *v1.VirtualMachineInstance) string {
		if t := vmi.Status.CurrentCPUTopology; t == nil || t.Sockets != n {
			return fmt.Sprintf("the guest has %+v", t)
		}
		return ""
	}
}

func hasMemory(mebibytes int64) func(*v1.VirtualMachineInstance) string {
	return func(vmi *v1.VirtualMachineInstance) string {
		if m := vmi.Status.Memory; m == nil || m.GuestCurrent == nil || m.GuestCurrent.Value()>>20 != mebibytes {
			return fmt.Sprintf("the guest has %+v", m)
		}
		return ""
	}
}

// hasInterface: there says whether the guest has it, and up whether its cable is plugged in.
func hasInterface(name string, there, up bool) func(*v1.VirtualMachineInstance) string {
	return func(vmi *v1.VirtualMachineInstance) string {
		at := slices.IndexFunc(vmi.Status.Interfaces, func(s v1.VirtualMachineInstanceNetworkInterface) bool {
			return s.Name == name
		})
		if (at >= 0) != there || there && (vmi.Status.Interfaces[at].LinkState == "up") != up {
			return fmt.Sprintf("the guest has %+v", vmi.Status.Interfaces)
		}
		return ""
	}
}

func hasVolume(name string, there bool) func(*v1.VirtualMachineInstance) string {
	return func(vmi *v1.VirtualMachineInstance) string {
		at := slices.IndexFunc(vmi.Status.VolumeStatus, func(s v1.VolumeStatus) bool { return s.Name == name })
		if (at >= 0) != there ||
			there && (vmi.Status.VolumeStatus[at].Phase != v1.VolumeReady || vmi.Status.VolumeStatus[at].Target == "") {
			return fmt.Sprintf("the guest has %+v", vmi.Status.VolumeStatus)
		}
		return ""
	}
}

// only is one effect at one path.
func only(path string, effect rollout.Effect) map[string]rollout.Effect {
	return map[string]rollout.Effect{path: effect}
}

// What `virtctl diff` says of an edit of a VM that runs comes true: what is live or plugged the guest has, what waits
// for a restart the condition RestartRequired names, and nothing else does. The edits of virt-controller's own test
// (TestVerdictsComeTrue) are made without a cluster; these go through the webhooks, the controller and the guest.
func TestVerdictsOfEdits(t *testing.T) {
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	c.network(t, ns, "red", `{"cniVersion":"1.0.0","name":"red","type":"bridge","bridge":"lan4","ipam":{}}`)
	c.claim(t, ns, "plug", corev1.PersistentVolumeFilesystem)
	g := c.create(t, newVM(ns, "edited", v1.RunStrategyAlways, withNetwork("red", "red"),
		withUserData("#cloud-config\nuser: root\npassword: tiny\n"), func(vm *v1.VirtualMachine) {
			vm.Labels = map[string]string{"app": "edited"}
			domain := &vm.Spec.Template.Spec.Domain
			domain.CPU = &v1.CPU{Sockets: 1}
			domain.Memory = &v1.Memory{
				Guest: ptr(resource.MustParse("256Mi")), MaxGuest: ptr(resource.MustParse("1Gi")),
			}
		}))
	typed := c.typedVM(t, ns)
	g.waitLogin(t)
	for _, e := range editsOfTheVM() {
		if !t.Run(e.name, func(t *testing.T) { g.try(t, e) }) {
			t.FailNow() // the next ones begin where this one ends
		}
	}
	typed.waitPhase(t, bootTime, v1.Running)
	for _, e := range editsOfTheType() {
		if !t.Run(e.name, func(t *testing.T) { typed.try(t, e) }) {
			t.FailNow()
		}
	}
}

// editsOfTheVM are in an order: each begins where those before it, as far as they are kept, have ended.
func editsOfTheVM() []edit {
	const disk, nic = "domain.devices.disks", "domain.devices.interfaces"
	state := func(s v1.InterfaceState) func(*v1.VirtualMachine) {
		return of(func(spec *v1.VirtualMachineInstanceSpec) { spec.Domain.Devices.Interfaces[1].State = s })
	}
	plug := func(volume v1.Volume) func(*v1.VirtualMachine) {
		return of(func(spec *v1.VirtualMachineInstanceSpec) {
			spec.Volumes = append(spec.Volumes, volume)
			spec.Domain.Devices.Disks = append(spec.Domain.Devices.Disks,
				v1.Disk{Name: volume.Name, DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusSCSI}}})
		})
	}
	fixed := pluggable("fixed", "plug")
	fixed.PersistentVolumeClaim.Hotpluggable = false
	edits := []edit{
		{
			name:   "a label",
			change: func(vm *v1.VirtualMachine) { vm.Labels = map[string]string{"app": "edited", "tier": "front"} },
			want:   only("metadata.labels", rollout.Live),
		},
		{
			name: "a label of the template", want: only("spec.template.metadata", rollout.Restart),
			change: func(vm *v1.VirtualMachine) {
				vm.Spec.Template.ObjectMeta.Labels = map[string]string{"app": "edited", "tier": "front"}
			},
		},
		{
			name: "limits come", change: limits(limited), want: only("spec.template.metadata", rollout.Live),
			has: hasLimits(limited), keep: true,
		},
		{
			name: "another limit, and one that goes", change: limits(limitedLess),
			want: only("spec.template.metadata.annotations", rollout.Live),
			has:  hasLimits(limitedLess), keep: true,
		},
		{
			name: "no limits", change: limits(nil), want: only("spec.template.metadata", rollout.Live),
			has: hasLimits(nil), keep: true,
		},
		{
			name:   "the run strategy",
			change: func(vm *v1.VirtualMachine) { vm.Spec.RunStrategy = ptr(v1.RunStrategyRerunOnFailure) },
			want:   only("spec.runStrategy", rollout.Live),
		},
		{
			name: "more sockets", change: sockets(2), want: only("domain.cpu.sockets", rollout.Hotplug),
			has: hasSockets(2), keep: true,
		},
		{name: "fewer sockets", change: sockets(1), want: only("domain.cpu.sockets", rollout.Restart)},
		{name: "too many sockets", change: sockets(64), want: only("domain.cpu.sockets", rollout.Restart)},
		{
			name: "more memory", change: memoryOf("512Mi"), want: only("domain.memory.guest", rollout.Hotplug),
			has: hasMemory(512), keep: true,
		},
		{
			name: "less memory", change: memoryOf("384Mi"), want: only("domain.memory.guest", rollout.Hotplug),
			has: hasMemory(384), keep: true,
		},
		{
			name: "less memory than at its start", change: memoryOf("128Mi"),
			want: only("domain.memory.guest", rollout.Restart),
		},
		{
			name: "a volume comes", change: plug(pluggable("plug", "plug")),
			want: map[string]rollout.Effect{disk: rollout.Hotplug, "volumes": rollout.Hotplug},
			has:  hasVolume("plug", true), keep: true,
		},
		{
			name: "a volume goes", want: map[string]rollout.Effect{disk: rollout.Hotplug, "volumes": rollout.Hotplug},
			has: hasVolume("plug", false), keep: true,
			change: of(func(spec *v1.VirtualMachineInstanceSpec) {
				without("plug")(spec)
				spec.Domain.Devices.Disks = slices.DeleteFunc(spec.Domain.Devices.Disks, func(d v1.Disk) bool {
					return d.Name == "plug"
				})
			}),
		},
		{
			name: "a volume that is not hotpluggable", change: plug(fixed),
			want: map[string]rollout.Effect{disk: rollout.Restart, "volumes": rollout.Restart},
		},
		{
			name: "a cable is pulled", change: state(v1.InterfaceStateLinkDown), want: only(nic, rollout.Live),
			has: hasInterface("red", true, false), keep: true,
		},
		{
			name: "a cable is plugged in", change: state(v1.InterfaceStateLinkUp), want: only(nic, rollout.Live),
			has: hasInterface("red", true, true), keep: true,
		},
		{
			name: "an interface is unplugged", change: state(v1.InterfaceStateAbsent), want: only(nic, rollout.Hotplug),
			has: hasInterface("red", false, false), keep: true,
		},
		{
			name: "an interface is taken out",
			want: map[string]rollout.Effect{nic: rollout.Live, "networks": rollout.Live}, keep: true,
			change: of(func(spec *v1.VirtualMachineInstanceSpec) {
				spec.Domain.Devices.Interfaces, spec.Networks = spec.Domain.Devices.Interfaces[:1], spec.Networks[:1]
			}),
			has: func(vmi *v1.VirtualMachineInstance) string {
				if len(vmi.Spec.Networks) != 1 {
					return fmt.Sprintf("the instance has %+v", vmi.Spec.Networks)
				}
				return ""
			},
		},
		{
			name: "another model of an interface", want: only(nic, rollout.Restart),
			change: of(func(spec *v1.VirtualMachineInstanceSpec) {
				spec.Domain.Devices.Interfaces[0].Model = "e1000e"
			}),
		},
		{
			name: "another bus of a disk", want: only(disk, rollout.Restart),
			change: of(func(spec *v1.VirtualMachineInstanceSpec) {
				spec.Domain.Devices.Disks[0].Disk.Bus = v1.DiskBusSATA
			}),
		},
		{
			name: "another image", want: only("volumes", rollout.Restart),
			change: of(func(spec *v1.VirtualMachineInstanceSpec) { spec.Volumes[0].ContainerDisk.Image += "-other" }),
		},
		{
			name: "other data of cloud-init", want: only("volumes", rollout.Restart),
			change: of(func(spec *v1.VirtualMachineInstanceSpec) {
				spec.Volumes[1].CloudInitNoCloud.UserData = "#cloud-config\nuser: root\npassword: other\n"
			}),
		},
	}
	for path, change := range waiting {
		edits = append(edits, edit{name: path, change: of(change), want: only(path, rollout.Restart)})
	}
	for path, change := range placements {
		edits = append(edits,
			edit{name: path, change: of(change), want: only(path, rollout.Live), has: hasPlacement(change)})
	}
	return edits
}

// waiting are fields below the template's spec that a guest which runs never gets.
var waiting = map[string]func(*v1.VirtualMachineInstanceSpec){
	"domain.cpu.cores": func(spec *v1.VirtualMachineInstanceSpec) { spec.Domain.CPU.Cores = 2 },
	"domain.firmware": func(spec *v1.VirtualMachineInstanceSpec) {
		if spec.Domain.Firmware == nil {
			spec.Domain.Firmware = &v1.Firmware{}
		}
		spec.Domain.Firmware.Serial = "e4686d2c-6e8d-4335-b8fd-81bee22f4814"
	},
	"domain.clock": func(spec *v1.VirtualMachineInstanceSpec) {
		zone := v1.ClockOffsetTimezone("Europe/Berlin")
		spec.Domain.Clock = &v1.Clock{ClockOffset: v1.ClockOffset{Timezone: &zone}}
	},
	"domain.devices.logSerialConsole": func(spec *v1.VirtualMachineInstanceSpec) {
		spec.Domain.Devices.LogSerialConsole = ptr(false)
	},
	"evictionStrategy": func(spec *v1.VirtualMachineInstanceSpec) {
		spec.EvictionStrategy = ptr(v1.EvictionStrategyNone)
	},
	"hostname": func(spec *v1.VirtualMachineInstanceSpec) { spec.Hostname = "renamed" },
	"terminationGracePeriodSeconds": func(spec *v1.VirtualMachineInstanceSpec) {
		spec.TerminationGracePeriodSeconds = ptr(int64(21))
	},
}

// placements are fields below the template's spec that the instance has at once, and by which the guest moves.
var placements = map[string]func(*v1.VirtualMachineInstanceSpec){
	"nodeSelector": func(spec *v1.VirtualMachineInstanceSpec) {
		spec.NodeSelector = map[string]string{corev1.LabelOSStable: "linux"}
	},
	"affinity": func(spec *v1.VirtualMachineInstanceSpec) {
		spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
				Weight: 1, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: corev1.LabelOSStable, Operator: corev1.NodeSelectorOpExists},
				}},
			}},
		}}
	},
	"tolerations": func(spec *v1.VirtualMachineInstanceSpec) {
		spec.Tolerations = []corev1.Toleration{{Key: "some", Operator: corev1.TolerationOpExists}}
	},
}

// hasPlacement reports an instance that has not the placement that a change makes.
func hasPlacement(change func(*v1.VirtualMachineInstanceSpec)) func(*v1.VirtualMachineInstance) string {
	var want v1.VirtualMachineInstanceSpec
	change(&want)
	return func(vmi *v1.VirtualMachineInstance) string {
		if has := rollout.PlacementOf(&vmi.Spec); !equality.Semantic.DeepEqual(has, rollout.PlacementOf(&want)) {
			return fmt.Sprintf("the instance has %+v", has)
		}
		return ""
	}
}

// typedVM is a VM whose size is that of instance type small, without room for more memory. There are also more, which
// has more vCPUs, and roomy, which has more memory.
func (c *cluster) typedVM(t *testing.T, ns string) *guest {
	t.Helper()
	for name, size := range map[string]struct {
		cpus   uint32
		memory string
	}{"small": {1, "128Mi"}, "more": {2, "128Mi"}, "roomy": {2, "256Mi"}} {
		object := &v1beta1.VirtualMachineInstancetype{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns}}
		object.Spec.CPU.Guest, object.Spec.Memory.Guest = size.cpus, resource.MustParse(size.memory)
		if err := c.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	return c.create(t, newVM(ns, "typed", v1.RunStrategyAlways, func(vm *v1.VirtualMachine) {
		vm.Spec.Template.Spec.Domain.Memory = nil
		vm.Spec.Instancetype = &v1.InstancetypeMatcher{Name: "small", Kind: "VirtualMachineInstancetype"}
	}))
}

func editsOfTheType() []edit {
	another := func(name string) func(*v1.VirtualMachine) {
		return func(vm *v1.VirtualMachine) {
			vm.Spec.Instancetype = &v1.InstancetypeMatcher{Name: name, Kind: "VirtualMachineInstancetype"}
		}
	}
	return []edit{
		{
			name: "an instance type with more vCPUs", change: another("more"),
			want: only("spec.instancetype", rollout.Hotplug), has: hasSockets(2), keep: true,
		},
		{
			name: "an instance type with more memory than there is room for", change: another("roomy"),
			want: only("spec.instancetype", rollout.Restart), named: "domain.memory.guest", keep: true,
		},
	}
}

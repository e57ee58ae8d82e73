package vmcontroller

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/vm/rollout"
	"github.com/virtkit/virtkit/pkg/vm/sizing"
	"github.com/virtkit/virtkit/pkg/vm/surface"
)

// edited is a VM of a template, as YAML, as admission leaves it.
func edited(t *testing.T, generation int64, template string) *v1.VirtualMachine {
	t.Helper()
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{
		Name: "demo", Namespace: "default", UID: "vm", Generation: generation,
		Finalizers: []string{v1.VirtualMachineControllerFinalizer},
	}}
	strategy := v1.RunStrategyAlways
	vm.Spec.RunStrategy, vm.Spec.Template = &strategy, &v1.VirtualMachineInstanceTemplateSpec{}
	if err := yaml.UnmarshalStrict([]byte(template), &vm.Spec.Template.Spec); err != nil {
		t.Fatalf("%s: %v", template, err)
	}
	vm.Status.RunStrategy = strategy
	return vm
}

// admitted is the VMI of a VM, as admission leaves it and virt-handler reports it.
func admitted(t *testing.T, vm *v1.VirtualMachine, migratable bool) *v1.VirtualMachineInstance {
	t.Helper()
	vmi, err := Instance(vm, false)
	if err != nil {
		t.Fatal(err)
	}
	surface.DefaultVirtualMachineInstance(vmi, surface.Defaults{LiveUpdate: &sizing.Bounds{Ratio: sizing.DefaultRatio}})
	vmi.UID, vmi.Status.Phase, vmi.Status.NodeName = "vmi", v1.Running, "n"
	cpu := vmi.Spec.Domain.CPU
	vmi.Status.CurrentCPUTopology = &v1.CPUTopology{Sockets: cpu.Sockets, Cores: cpu.Cores, Threads: cpu.Threads}
	if guest := vmi.Spec.Domain.Memory.Guest; guest != nil {
		vmi.Status.Memory = &v1.MemoryStatus{GuestAtBoot: guest, GuestCurrent: guest, GuestRequested: guest}
	}
	if !migratable {
		vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{{
			Type: v1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionFalse,
			Reason:  "DisksNotLiveMigratable",
			Message: "a claim is ReadWriteOnce",
		}}
	}
	return vmi
}

func asMap(t *testing.T, vm *v1.VirtualMachine) map[string]any {
	t.Helper()
	data, err := json.Marshal(map[string]any{"spec": vm.Spec})
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// What the rules say of an edit before it is made is what virt-controller makes of it: a verdict "restart" goes with
// the condition RestartRequired, which names the field, and no other one does; hotplug and migration with a changed
// VMI.
func TestVerdictsComeTrue(t *testing.T) {
	const (
		small = "domain: {memory: {guest: 128Mi}}"
		large = "domain: {cpu: {sockets: 2}, memory: {guest: 1Gi}}"
		huge  = "domain: {cpu: {sockets: 1, cores: 2}, memory: {guest: 1Gi, hugepages: {pageSize: 2Mi}}}"
		fixed = "domain: {cpu: {sockets: 1, dedicatedCpuPlacement: true}, memory: {guest: 1Gi}}"
		asked = "domain: {resources: {requests: {memory: 1Gi, cpu: 2}}}"
		bare  = "domain: {memory: {guest: 1Gi}}"
		pod   = "domain: {memory: {guest: 1Gi}, devices: {interfaces: [{name: default, " +
			"masquerade: {}}]}}\nnetworks: [{name: default, pod: {}}]"
		red = "domain: {memory: {guest: 1Gi}, devices: {interfaces: [{name: default, masquerade: {}}, " +
			"{name: red, bridge: {}}]}}\n" +
			"networks: [{name: default, pod: {}}, {name: red, multus: {networkName: red-net}}]"
		plain = "domain: {memory: {guest: 1Gi}, devices: {disks: [{name: root, " +
			"disk: {bus: virtio}}]}}\nvolumes: [{name: root, containerDisk: {image: x}}]"
		data = "domain: {memory: {guest: 1Gi}, devices: {disks: [{name: root, disk: {bus: virtio}}, {name: data, " +
			"disk: {bus: scsi}}]}}\n" +
			"volumes: [{name: root, containerDisk: {image: x}}, {name: data, persistentVolumeClaim: {claimName: " +
			"c, hotpluggable: true}}]"
		drive = "domain: {memory: {guest: 1Gi}, devices: {disks: [{name: root, disk: {bus: virtio}}, {name: cd, " +
			"cdrom: {}}]}}\nvolumes: [{name: root, containerDisk: {image: x}}]"
	)
	disc := drive[:len(drive)-1] + ", {name: cd, persistentVolumeClaim: {claimName: c, hotpluggable: true}}]"
	change := func(from, old, text string) string {
		if !strings.Contains(from, old) {
			t.Fatalf("%q is not in %q", old, from)
		}
		return strings.Replace(from, old, text, 1)
	}
	for name, tc := range map[string]struct {
		before, after  string
		staged, pinned bool
		// want are the effects by path below the template's spec.
		want string
	}{
		"sockets that were not given": {
			before: small, after: change(small, "domain: {", "domain: {cpu: {sockets: 2}, "),
			want: "domain.cpu: hotplug",
		},
		"sockets beside cores not given": {
			before: "domain: {cpu: {cores: 2}, memory: {guest: 1Gi}}",
			after:  "domain: {cpu: {cores: 2, sockets: 2}, memory: {guest: 1Gi}}", want: "domain.cpu.sockets: hotplug",
		},
		"sockets": {
			before: large, after: change(large, "sockets: 2", "sockets: 4"), want: "domain.cpu.sockets: hotplug",
		},
		"sockets beyond the bound": {
			before: large, after: change(large, "sockets: 2", "sockets: 100"), want: "domain.cpu.sockets: restart",
		},
		"fewer sockets": {
			before: large, after: change(large, "sockets: 2", "sockets: 1"), want: "domain.cpu.sockets: restart",
		},
		"sockets no more given": {
			before: large, after: change(large, "cpu: {sockets: 2}, ", ""), want: "domain.cpu: restart",
		},
		"one socket, written out": {
			before: small, after: change(small, "domain: {", "domain: {cpu: {sockets: 1}, "), want: "domain.cpu: live",
		},
		"the bound, written out": {
			before: large, after: change(large, "sockets: 2", "sockets: 2, maxSockets: 8"),
			want: "domain.cpu.maxSockets: restart",
		},
		"one core, written out": {
			before: large, after: change(large, "sockets: 2", "sockets: 2, cores: 1"), want: "domain.cpu.cores: live",
		},
		"cores": {
			before: large, after: change(large, "sockets: 2", "sockets: 2, cores: 2"),
			want: "domain.cpu.cores: restart",
		},
		"cores and sockets": {
			before: large, after: change(large, "sockets: 2", "sockets: 4, cores: 2"),
			want: "domain.cpu.cores: restart, domain.cpu.sockets: hotplug",
		},
		"staged sockets": {
			before: large, after: change(large, "sockets: 2", "sockets: 4"), staged: true,
			want: "domain.cpu.sockets: restart",
		},
		"sockets of its own": {
			before: fixed, after: change(fixed, "sockets: 1", "sockets: 2"), want: "domain.cpu.sockets: migration",
		},
		"sockets of its own, not migratable": {
			before: fixed, after: change(fixed, "sockets: 1", "sockets: 2"), pinned: true,
			want: "domain.cpu.sockets: restart",
		},
		"the bound of sockets": {
			before: large, after: change(large, "sockets: 2", "sockets: 2, maxSockets: 16"),
			want: "domain.cpu.maxSockets: restart",
		},
		"memory without room": {
			before: small, after: change(small, "128Mi", "256Mi"), want: "domain.memory.guest: restart",
		},
		"memory with room": {before: large, after: change(large, "1Gi", "2Gi"), want: "domain.memory.guest: hotplug"},
		"memory beyond the bound": {
			before: large, after: change(large, "1Gi", "64Gi"), want: "domain.memory.guest: restart",
		},
		"memory not whole pages": {
			before: large, after: change(large, "1Gi", "2000000001"), want: "domain.memory.guest: restart",
		},
		"less memory": {
			before: large, after: change(large, "1Gi", "512Mi"), want: "domain.memory.guest: restart",
		},
		"memory written otherwise": {before: large, after: change(large, "1Gi", "1024Mi")},
		"staged memory": {
			before: large, after: change(large, "1Gi", "2Gi"), staged: true, want: "domain.memory.guest: restart",
		},
		"huge pages": {
			before: huge, after: change(huge, "guest: 1Gi", "guest: 2Gi"), want: "domain.memory.guest: migration",
		},
		"huge pages, not migratable": {
			before: huge, after: change(huge, "guest: 1Gi", "guest: 2Gi"), pinned: true,
			want: "domain.memory.guest: restart",
		},
		"memory that was the request's": {
			before: asked, after: change(asked, "domain: {", "domain: {memory: {guest: 2Gi}, "),
			want: "domain.memory: hotplug",
		},
		"the request's, written out": {
			before: asked, after: change(asked, "domain: {", "domain: {memory: {guest: 1Gi}, "),
			want: "domain.memory: live",
		},
		"a request": {
			before: asked, after: change(asked, "cpu: 2", "cpu: 3"), want: "domain.resources.requests.cpu: restart",
		},
		"a node selector": {before: small, after: small + "\nnodeSelector: {a: b}", want: "nodeSelector: live"},
		"a node selector, staged": {
			before: small, after: small + "\nnodeSelector: {a: b}", staged: true, want: "nodeSelector: restart",
		},
		"no node selector": {before: small + "\nnodeSelector: {a: b}", after: small, want: "nodeSelector: live"},
		"no node selector, staged": {
			before: small + "\nnodeSelector: {a: b}", after: small, staged: true, want: "nodeSelector: restart",
		},
		"another node": {
			before: small + "\nnodeSelector: {kubernetes.io/hostname: node1}",
			after:  small + "\nnodeSelector: {kubernetes.io/hostname: node2}",
			want:   "nodeSelector[kubernetes.io/hostname]: live",
		},
		"an affinity": {before: small, after: small + "\naffinity: {podAntiAffinity: {}}", want: "affinity: live"},
		"another affinity, staged": {
			before: small + "\naffinity: {podAntiAffinity: {}}",
			after:  small + "\naffinity: {podAntiAffinity: {}, podAffinity: {}}", staged: true,
			want: "affinity.podAffinity: restart",
		},
		"a toleration": {
			before: small, after: small + "\ntolerations: [{key: a, operator: Exists}]", want: "tolerations[0]: live",
		},
		"another toleration": {
			before: small + "\ntolerations: [{key: a, operator: Exists}]",
			after:  small + "\ntolerations: [{key: b, operator: Exists}]", want: "tolerations[0].key: live",
		},
		"a toleration, staged": {
			before: small, after: small + "\ntolerations: [{key: a, operator: Exists}]", staged: true,
			want: "tolerations[0]: restart",
		},
		"placement and cores": {
			before: small, after: change(small, "domain: {", "domain: {cpu: {cores: 2}, ") + "\nnodeSelector: {a: b}",
			want: "domain.cpu: restart, nodeSelector: live",
		},
		"placement and size": {
			before: large, after: change(large, "1Gi", "2Gi") + "\nnodeSelector: {a: b}",
			want: "domain.memory.guest: hotplug, nodeSelector: live",
		},
		"other nodes to spread over": {
			before: small,
			after: small +
				"\ntopologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]",
			want: "topologySpreadConstraints[0]: restart",
		},
		"a link": {
			before: red, after: change(red, "{name: red, bridge: {}}", "{name: red, bridge: {}, state: down}"),
			want: "domain.devices.interfaces[red].state: live",
		},
		"an interface comes": {
			before: pod, after: red, want: "domain.devices.interfaces[red]: migration, networks[red]: migration",
		},
		"an interface, staged": {
			before: pod, after: red, staged: true,
			want: "domain.devices.interfaces[red]: restart, networks[red]: restart",
		},
		"an interface, not migratable": {
			before: pod, after: red, pinned: true,
			want: "domain.devices.interfaces[red]: restart, networks[red]: restart",
		},
		"an interface goes": {
			before: red, after: change(red, "{name: red, bridge: {}}", "{name: red, bridge: {}, state: absent}"),
			want: "domain.devices.interfaces[red].state: hotplug",
		},
		"an interface is cut out": {
			before: red, after: pod, want: "domain.devices.interfaces[red]: restart, networks[red]: restart",
		},
		"the default interface, written out": {
			before: bare, after: pod, want: "domain.devices.interfaces[default]: live, networks[default]: live",
		},
		"the default interface, its cable pulled": {
			before: bare, after: change(pod, "masquerade: {}", "masquerade: {}, state: down"),
			want: "domain.devices.interfaces[default]: live, networks[default]: live",
		},
		"the default interface as another": {
			before: bare, after: change(pod, "masquerade: {}", "bridge: {}, state: down"),
			want: "domain.devices.interfaces[default]: restart, networks[default]: restart",
		},
		"ports and a cable": {
			before: pod, after: change(pod, "masquerade: {}", "masquerade: {}, ports: [{port: 80}], state: down"),
			want: "domain.devices.interfaces[default].ports[0]: restart, " +
				"domain.devices.interfaces[default].state: live",
		},
		"another model": {
			before: red, after: change(red, "bridge: {}", "bridge: {}, model: e1000e"),
			want: "domain.devices.interfaces[red].model: restart",
		},
		"another network": {
			before: red, after: change(red, "red-net", "blue-net"), want: "networks[red].multus.networkName: migration",
		},
		"another network, staged": {
			before: red, after: change(red, "red-net", "blue-net"), staged: true,
			want: "networks[red].multus.networkName: restart",
		},
		"another network, not migratable": {
			before: red, after: change(red, "red-net", "blue-net"), pinned: true,
			want: "networks[red].multus.networkName: restart",
		},
		"a disk comes": {
			before: plain, after: data, want: "domain.devices.disks[data]: hotplug, volumes[data]: hotplug",
		},
		"a disk comes, staged": {
			before: plain, after: data, staged: true,
			want: "domain.devices.disks[data]: restart, volumes[data]: restart",
		},
		"a disk goes": {
			before: data, after: plain, want: "domain.devices.disks[data]: hotplug, volumes[data]: hotplug",
		},
		"another claim": {
			before: data, after: change(data, "claimName: c", "claimName: d"),
			want: "volumes[data].persistentVolumeClaim.claimName: hotplug",
		},
		"a disk for good": {
			before: plain, after: change(data, ", hotpluggable: true", ""),
			want: "domain.devices.disks[data]: restart, volumes[data]: restart",
		},
		"another image": {
			before: plain, after: change(plain, "image: x", "image: z"),
			want: "volumes[root].containerDisk.image: restart",
		},
		"a disc":  {before: drive, after: disc, want: "volumes[cd]: hotplug"},
		"no disc": {before: disc, after: drive, want: "volumes[cd]: hotplug"},
		"a drive": {before: plain, after: drive, want: "domain.devices.disks[cd]: restart"},
		"a drive and its disc": {
			before: plain, after: disc, want: "domain.devices.disks[cd]: restart, volumes[cd]: restart",
		},
		"a drive and its disc go": {
			before: disc, after: plain, want: "domain.devices.disks[cd]: restart, volumes[cd]: hotplug",
		},
	} {
		t.Run(name, func(t *testing.T) {
			was, is := edited(t, 1, tc.before), edited(t, 2, tc.after)
			vmi := admitted(t, was, !tc.pinned)
			before, after := asMap(t, was), asMap(t, is)
			verdicts := rollout.Guest{Instance: vmi, Staged: tc.staged}.Verdicts(rollout.Compare(before, after),
				rollout.Edit{Before: before, After: after, Was: &was.Spec.Template.Spec, Is: &is.Spec.Template.Spec})
			var said, restart []string
			plugs := false
			for _, v := range verdicts {
				path := strings.TrimPrefix(v.Path, "spec.template.spec.")
				said = append(said, path+": "+string(v.Effect))
				if v.Effect == rollout.Restart {
					restart = append(restart, path)
				}
				plugs = plugs || v.Effect == rollout.Hotplug || v.Effect == rollout.Migration
			}
			if got := strings.Join(said, ", "); got != tc.want {
				t.Errorf("the verdict is %s, want %s", got, tc.want)
			}

			step := Next(View{VM: is, VMI: vmi.DeepCopy(), Staged: tc.staged, Filled: true})
			if step.Invalid != nil {
				t.Fatal(step.Invalid)
			}
			message := restartOf(status(t, step.After))
			if tc.pinned && sizing.PodObstacle(&vmi.Spec.Domain, strings.HasPrefix(tc.want, "domain.memory")) != "" {
				return // pkg/controller/resizecontroller says so, and then the VM: TestSizeAndRestart
			}
			if (message != "") != (len(restart) > 0) {
				t.Errorf("RestartRequired is %q, and the verdicts are %v", message, said)
			}
			for _, path := range restart {
				field, _, _ := strings.Cut(path, "]")
				if name != "the bound, written out" && !strings.Contains(message, field) &&
					!strings.Contains(message, strings.Replace(field, "networks[", "domain.devices.interfaces[", 1)) &&
					!strings.Contains(message, strings.Replace(field, "volumes[", "domain.devices.disks[", 1)) &&
					!strings.Contains(message, strings.Replace(field, "domain.devices.disks[", "volumes[", 1)) {
					t.Errorf("RestartRequired does not name %s: %s", path, message)
				}
			}
			changed := !equality.Semantic.DeepEqual(step.After.VMI.Spec, vmi.Spec)
			if changed && !plugs && !strings.HasSuffix(tc.want, "live") || !changed && plugs {
				t.Errorf("the VMI is changed: %v, and the verdicts are %v", changed, said)
			}

			// Taken back before the guest was started again, or was given any of it, it waits for nothing.
			back := edited(t, 3, tc.before)
			for _, v := range (rollout.Guest{Instance: vmi, Staged: tc.staged}).Verdicts(rollout.Compare(after, before),
				rollout.Edit{Before: after, After: before, Was: &is.Spec.Template.Spec, Is: &back.Spec.Template.Spec}) {
				if v.Effect == rollout.Restart {
					t.Errorf("taken back, %s: %s %s", v.Path, v.Effect, v.Note)
				}
			}
			step = Next(View{VM: back, VMI: vmi.DeepCopy(), Staged: tc.staged, Filled: true})
			if message := restartOf(status(t, step.After)); message != "" {
				t.Errorf("taken back: %s", message)
			}
		})
	}
}

// Of two changes that wait for a restart one is taken back: the other waits.
func TestVerdictOfWhatIsTakenBack(t *testing.T) {
	const (
		made  = "domain: {cpu: {cores: 1}, memory: {guest: 1Gi}}\nterminationGracePeriodSeconds: 30"
		both  = "domain: {cpu: {cores: 2}, memory: {guest: 1Gi}}\nterminationGracePeriodSeconds: 60"
		other = "domain: {cpu: {cores: 2}, memory: {guest: 1Gi}}\nterminationGracePeriodSeconds: 90"
		cores = "domain: {cpu: {cores: 2}, memory: {guest: 1Gi}}\nterminationGracePeriodSeconds: 30"
		grace = "domain: {cpu: {cores: 1}, memory: {guest: 1Gi}}\nterminationGracePeriodSeconds: 60"
	)
	vmi := admitted(t, edited(t, 1, made), true)
	for name, tc := range map[string]struct{ after, want, message string }{
		"the grace period": {
			cores, "spec.template.spec.terminationGracePeriodSeconds: live the guest has it", "domain.cpu.cores",
		},
		"the cores": {
			grace, "spec.template.spec.domain.cpu.cores: live the guest has it", "terminationGracePeriodSeconds",
		},
		"neither": {
			other, "spec.template.spec.terminationGracePeriodSeconds: restart",
			"domain.cpu.cores, spec.template.spec.terminationGracePeriodSeconds",
		},
	} {
		was, is := edited(t, 2, both), edited(t, 3, tc.after)
		before, after := asMap(t, was), asMap(t, is)
		var said []string
		for _, v := range (rollout.Guest{Instance: vmi}).Verdicts(rollout.Compare(before, after),
			rollout.Edit{Before: before, After: after, Was: &was.Spec.Template.Spec, Is: &is.Spec.Template.Spec}) {
			said = append(said, strings.TrimSpace(v.Path+": "+string(v.Effect)+" "+v.Note))
		}
		if got := strings.Join(said, ", "); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
		message := restartOf(status(t, Next(View{VM: is, VMI: vmi.DeepCopy(), Filled: true}).After))
		if !strings.HasSuffix(message, ": spec.template.spec."+tc.message) {
			t.Errorf("%s: the condition says %q, want %s alone", name, message, tc.message)
		}
	}
}

// Labels and annotations of the template are the next instance's; as in KubeVirt the condition does not count them.
func TestTemplateMetadataWaitsWithoutACondition(t *testing.T) {
	was := edited(t, 1, "domain: {memory: {guest: 1Gi}}")
	vmi := admitted(t, was, true)
	is := edited(t, 2, "domain: {memory: {guest: 1Gi}}")
	is.Spec.Template.ObjectMeta.Labels = map[string]string{"tier": "front"}
	before, after := asMap(t, was), asMap(t, is)
	verdicts := rollout.Guest{Instance: vmi}.Verdicts(rollout.Compare(before, after),
		rollout.Edit{Before: before, After: after, Was: &was.Spec.Template.Spec, Is: &is.Spec.Template.Spec})
	if len(verdicts) != 1 || verdicts[0].Effect != rollout.Restart || verdicts[0].Note == "" {
		t.Errorf("%+v", verdicts)
	}
	step := Next(View{VM: is, VMI: vmi.DeepCopy(), Filled: true})
	if message := restartOf(status(t, step.After)); message != "" {
		t.Error(message)
	}
	if step.After.VMI.Labels["tier"] != "" {
		t.Error("the instance has the label")
	}
}

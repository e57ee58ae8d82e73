package instancetype

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"
	"sigs.k8s.io/yaml"
)

func parse[T any](t *testing.T, text string) *T {
	t.Helper()
	out := new(T)
	if err := yaml.UnmarshalStrict([]byte(text), out); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return out
}

// resolved of an instance type and a preference, either of which may be empty.
func resolved(t *testing.T, it, preference string) Resolved {
	t.Helper()
	var out Resolved
	if it != "" {
		out.Instancetype = &Object{
			Role: Instancetype, Kind: "VirtualMachineClusterInstancetype", Name: "it",
			Instancetype: parse[v1beta1.VirtualMachineInstancetypeSpec](t, it),
		}
	}
	if preference != "" {
		out.Preference = &Object{
			Role: Preference, Kind: "VirtualMachinePreference", Name: "pref",
			Preference: parse[v1beta1.VirtualMachinePreferenceSpec](t, preference),
		}
	}
	return out
}

const small = "{cpu: {guest: 2}, memory: {guest: 1Gi}}"

func TestExpand(t *testing.T) {
	for name, test := range map[string]struct{ it, preference, spec, want string }{
		"nothing": {
			"", "", "domain: {memory: {guest: 1Gi}, devices: {}}", "domain: {memory: {guest: 1Gi}, devices: {}}",
		},
		"size": {
			small, "", "domain: {devices: {autoattachPodInterface: false}}",
			"domain: {cpu: {sockets: 2, cores: 1, threads: 1}, memory: {guest: 1Gi}, " +
				"devices: {autoattachPodInterface: false}}",
		},
		"everything of an instance type": {
			`{cpu: {guest: 1, model: Nehalem, maxSockets: 4, dedicatedCPUPlacement: true, isolateEmulatorThread: true, numa: {}, realtime: {mask: "0"}},
			  memory: {guest: 1000Mi, maxGuest: 2Gi, hugepages: {pageSize: 2Mi}, overcommitPercent: 20}, nodeSelector: {a: b}, schedulerName: mine,
			  gpus: [{name: g, deviceName: x}], hostDevices: [{name: h, deviceName: z}], ioThreadsPolicy: shared, ioThreads: {supplementalPoolThreadCount: 2}, launchSecurity: {sev: {}}}`,
			"", "{nodeSelector: {c: d}, domain: {devices: {autoattachPodInterface: false}}}",
			`{nodeSelector: {a: b, c: d}, schedulerName: mine, domain: {
			  cpu: {sockets: 1, cores: 1, threads: 1, maxSockets: 4, model: Nehalem, dedicatedCpuPlacement: true, isolateEmulatorThread: true, numa: {}, realtime: {mask: "0"}},
			  memory: {guest: 1000Mi, maxGuest: 2Gi, hugepages: {pageSize: 2Mi}}, resources: {requests: {memory: 800Mi}},
			  ioThreadsPolicy: shared, ioThreads: {supplementalPoolThreadCount: 2}, launchSecurity: {sev: {}},
			  devices: {autoattachPodInterface: false, gpus: [{name: g, deviceName: x}], hostDevices: [{name: h, deviceName: z}]}}}`,
		},
		"devices of a preference": {
			"",
			`devices: {preferredDiskBus: virtio, preferredCdromBus: scsi, preferredLunBus: scsi, preferredDiskCache: none, preferredDiskIO: threads, preferredDiskDedicatedIoThread: true,
			  preferredDiskBlockSize: {custom: {logical: 512, physical: 512}}, preferredInterfaceModel: e1000, preferredInterfaceMasquerade: {}, preferredRng: {}, preferredTPM: {},
			  preferredAutoattachGraphicsDevice: false, preferredAutoattachMemBalloon: false, preferredAutoattachSerialConsole: true, preferredAutoattachInputDevice: true,
			  preferredInputBus: virtio, preferredInputType: tablet, preferredDisableHotplug: true, preferredPanicDeviceModel: isa, preferredSoundModel: ac97,
			  preferredBlockMultiQueue: true, preferredNetworkInterfaceMultiQueue: true, preferredUseVirtioTransitional: true, preferredVirtualGPUOptions: {display: {enabled: true}}}`,
			`{domain: {devices: {disks: [{name: own, disk: {bus: sata}}, {name: cd, cdrom: {}}, {name: lun, lun: {}}], panicDevices: [{}], sound: {name: s}, gpus: [{name: g, deviceName: d}]}},
			  volumes: [{name: own}, {name: cd}, {name: lun}, {name: listless}]}`,
			`{domain: {devices: {
			  disks: [
			    {name: own, disk: {bus: sata}, cache: none, io: threads, blockSize: {custom: {logical: 512, physical: 512}}},
			    {name: cd, cdrom: {bus: scsi}, cache: none, io: threads, blockSize: {custom: {logical: 512, physical: 512}}},
			    {name: lun, lun: {bus: scsi}, cache: none, io: threads, blockSize: {custom: {logical: 512, physical: 512}}},
			    {name: listless, disk: {bus: virtio}, dedicatedIOThread: true, cache: none, io: threads, blockSize: {custom: {logical: 512, physical: 512}}}],
			  interfaces: [{name: default, model: e1000, masquerade: {}}], rng: {}, tpm: {},
			  autoattachGraphicsDevice: false, autoattachMemBalloon: false, autoattachSerialConsole: true, autoattachInputDevice: true,
			  inputs: [{name: default-0, bus: virtio, type: tablet}], disableHotplug: true, panicDevices: [{model: isa}], sound: {name: s, model: ac97},
			  blockMultiQueue: true, networkInterfaceMultiqueue: true, useVirtioTransitional: true, gpus: [{name: g, deviceName: d, virtualGPUOptions: {display: {enabled: true}}}]}},
			  networks: [{name: default, pod: {}}], volumes: [{name: own}, {name: cd}, {name: lun}, {name: listless}]}`,
		},
		"the rest of a preference": {
			"",
			`{machine: {preferredMachineType: pc-q35-9.2}, preferredArchitecture: amd64, preferredSubdomain: s, preferredTerminationGracePeriodSeconds: 5,
			  cpu: {preferredCPUFeatures: [{name: vmx}, {name: own, policy: forbid}]}, clock: {preferredClockOffset: {utc: {}}, preferredTimer: {kvm: {}}},
			  features: {preferredAcpi: {enabled: false}, preferredApic: {}, preferredHyperv: {}, preferredKvm: {hidden: true}, preferredPvspinlock: {}, preferredSmm: {}},
			  firmware: {preferredUseBios: true, preferredUseBiosSerial: true}}`,
			"domain: {cpu: {features: [{name: own, policy: require}]}, devices: {autoattachPodInterface: false}}",
			`{architecture: amd64, subdomain: s, terminationGracePeriodSeconds: 5, domain: {machine: {type: pc-q35-9.2},
			  cpu: {features: [{name: own, policy: require}, {name: vmx}]}, clock: {utc: {}, timer: {kvm: {}}},
			  features: {acpi: {enabled: false}, apic: {}, hyperv: {}, kvm: {hidden: true}, pvspinlock: {}, smm: {}},
			  firmware: {bootloader: {bios: {useSerial: true}}}, devices: {autoattachPodInterface: false}}}`,
		},
		"UEFI": {
			"", "firmware: {preferredEfi: {}}", "domain: {devices: {autoattachPodInterface: false}}",
			"domain: {firmware: {bootloader: {efi: {}}}, features: {smm: {enabled: true}}, " +
				"devices: {autoattachPodInterface: false}}",
		},
		"UEFI as it was": {
			"", "firmware: {preferredUseEfi: true, preferredUseSecureBoot: false}",
			"domain: {devices: {autoattachPodInterface: false}}",
			"domain: {firmware: {bootloader: {efi: {secureBoot: false}}}, devices: {autoattachPodInterface: false}}",
		},
		"firmware is the user's": {
			"", "firmware: {preferredEfi: {}}",
			"domain: {firmware: {bootloader: {bios: {}}}, devices: {autoattachPodInterface: false}}",
			"domain: {firmware: {bootloader: {bios: {}}}, devices: {autoattachPodInterface: false}}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			vm := &v1.VirtualMachine{}
			vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{
				Spec: *parse[v1.VirtualMachineInstanceSpec](t, test.spec),
			}
			before := vm.DeepCopy()
			got, errs := Expand(vm, resolved(t, test.it, test.preference))
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			want := parse[v1.VirtualMachineInstanceSpec](t, test.want)
			if diff := cmp.Diff(text(t, want), text(t, &got.Spec)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if diff := cmp.Diff(text(t, before), text(t, vm)); diff != "" {
				t.Errorf("the VM was changed:\n%s", diff)
			}
		})
	}
}

func text(t *testing.T, object any) string {
	t.Helper()
	data, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestConflicts(t *testing.T) {
	full := `{cpu: {guest: 1, model: Nehalem, maxSockets: 4, dedicatedCPUPlacement: true, isolateEmulatorThread: true, numa: {}, realtime: {}},
	  memory: {guest: 1Gi, maxGuest: 2Gi, hugepages: {pageSize: 2Mi}}, nodeSelector: {a: b}, schedulerName: mine, annotations: {a: b},
	  gpus: [{name: g, deviceName: x}], hostDevices: [{name: h, deviceName: z}], ioThreadsPolicy: shared, ioThreads: {}, launchSecurity: {}}`
	for spec, want := range map[string]string{
		"domain: {cpu: {sockets: 1}, devices: {}}":              "domain.cpu.sockets",
		"domain: {cpu: {cores: 1, threads: 1}, devices: {}}":    "domain.cpu.cores domain.cpu.threads",
		"domain: {cpu: {model: x, maxSockets: 3}, devices: {}}": "domain.cpu.maxSockets domain.cpu.model",
		"domain: {cpu: {dedicatedCpuPlacement: true, isolateEmulatorThread: true, numa: {}, " +
			"realtime: {}}, devices: {}}": "domain.cpu.dedicatedCpuPlacement domain.cpu.isolateEmulatorThread " +
			"domain.cpu.numa domain.cpu.realtime",
		"domain: {memory: {guest: 1Gi, maxGuest: 1Gi, " +
			"hugepages: {}}, devices: {}}": "domain.memory.guest domain.memory.hugepages domain.memory.maxGuest",
		"domain: {resources: {requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 1, " +
			"memory: 1Gi}}, devices: {}}": "domain.resources.requests.cpu domain.resources.limits.cpu " +
			"domain.resources.requests.memory domain.resources.limits.memory",
		"domain: {ioThreadsPolicy: auto, ioThreads: {}, launchSecurity: {}, devices: {gpus: [{name: a, " +
			"deviceName: b}], hostDevices: [{name: a, deviceName: b}]}}": "domain.devices.gpus " +
			"domain.devices.hostDevices domain.ioThreadsPolicy domain.ioThreads domain.launchSecurity",
		"{schedulerName: other, nodeSelector: {a: c}, domain: {devices: {}}}": "nodeSelector[a] schedulerName",
	} {
		vm := &v1.VirtualMachine{}
		vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{Spec: *parse[v1.VirtualMachineInstanceSpec](t, spec)}
		_, errs := Expand(vm, resolved(t, full, ""))
		var got []string
		for _, err := range errs {
			got = append(got, strings.TrimPrefix(err.Field, "spec.template.spec."))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %v, want %s", spec, got, want)
		}
	}
	vm := &v1.VirtualMachine{}
	vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{}
	vm.Spec.Template.ObjectMeta.Annotations = map[string]string{"a": "c"}
	if _, errs := Expand(vm, resolved(t, full, "")); len(errs) != 1 ||
		errs[0].Field != "spec.template.metadata.annotations[a]" {
		t.Errorf("annotations: %v", errs)
	}
	vm.Spec.Template.ObjectMeta.Annotations["a"] = "b"
	if _, errs := Expand(vm, resolved(t, full, "annotations: {a: other}")); len(errs) != 0 {
		t.Errorf("the same annotation conflicts: %v", errs)
	}
}

func TestTopology(t *testing.T) {
	for _, test := range []struct {
		vcpus      uint32
		preference string
		want       [3]uint32 // sockets, cores, threads
	}{
		{1, "cpu: {preferredCPUTopology: cores}", [3]uint32{1, 1, 1}},
		{4, "{}", [3]uint32{4, 1, 1}},
		{4, "cpu: {preferredCPUTopology: any}", [3]uint32{4, 1, 1}},
		{4, "cpu: {preferredCPUTopology: preferCores}", [3]uint32{1, 4, 1}},
		{4, "cpu: {preferredCPUTopology: threads}", [3]uint32{1, 1, 4}},
		{6, "cpu: {preferredCPUTopology: spread}", [3]uint32{3, 2, 1}},
		{6, "{preferSpreadSocketToCoreRatio: 3, cpu: {preferredCPUTopology: preferSpread}}", [3]uint32{2, 3, 1}},
		{8, "cpu: {preferredCPUTopology: spread, spreadOptions: {ratio: 4}}", [3]uint32{2, 4, 1}},
		{8, "cpu: {preferredCPUTopology: spread, spreadOptions: {across: CoresThreads}}", [3]uint32{1, 4, 2}},
		{8, "cpu: {preferredCPUTopology: spread, spreadOptions: {across: SocketsCoresThreads}}", [3]uint32{2, 2, 2}},
	} {
		var got [3]uint32
		got[0], got[1], got[2] = topology(test.vcpus, parse[v1beta1.VirtualMachinePreferenceSpec](t, test.preference))
		if got != test.want {
			t.Errorf("%d vCPUs, %s: got %v, want %v", test.vcpus, test.preference, got, test.want)
		}
	}
}

func TestUnevenSpread(t *testing.T) {
	vm := &v1.VirtualMachine{}
	vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{}
	_, errs := Expand(vm, resolved(t, "{cpu: {guest: 5}, memory: {guest: 1Gi}}", "cpu: {preferredCPUTopology: spread}"))
	want := `5 vCPUs of instance type "it" cannot be spread by preference "pref" across SocketsCores: 2 must divide them`
	if len(errs) != 1 || errs[0].Detail != want {
		t.Errorf("got %v, want %s", errs, want)
	}
}

func TestCapture(t *testing.T) {
	vm := &v1.VirtualMachine{}
	vm.Name, vm.Namespace, vm.UID = "vm", "default", "vm-uid"
	object := parse[v1beta1.VirtualMachineClusterInstancetype](t,
		"{metadata: {name: u1, uid: abc, generation: 3, managedFields: [{manager: m}]}, spec: "+small+"}")
	it := &Object{Role: Instancetype, Kind: "VirtualMachineClusterInstancetype", Name: "u1", object: object}
	it.take()
	revision, err := Capture(vm, it)
	if err != nil {
		t.Fatal(err)
	}
	if revision.Name != "vm-u1-v1beta1-abc-3" || revision.OwnerReferences[0].UID != "vm-uid" ||
		strings.Contains(string(revision.Data.Raw), "managedFields") {
		t.Errorf("%s %+v", revision.Name, revision)
	}
	back := &Object{Role: Instancetype, Name: "u1"}
	if err := back.fromRevision(revision); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(it.Instancetype, back.Instancetype); diff != "" {
		t.Error(diff)
	}
	if err := (&Object{Role: Preference}).fromRevision(revision); err == nil {
		t.Error("an instance type was read as a preference")
	}
	it.Name = strings.Repeat("u", 253)
	if revision, err = Capture(vm, it); err != nil || len(revision.Name) > 253 {
		t.Errorf("%d %v", len(revision.Name), err)
	}
}

func TestAnnotations(t *testing.T) {
	got := resolved(t, small, "{}").Annotations()
	want := map[string]string{v1.ClusterInstancetypeAnnotation: "it", v1.PreferenceAnnotation: "pref"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

package instancetype

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/yaml"
)

// preferences sets each field of a preference to a value that must show.
var preferences = map[string]string{
	"clock.preferredClockOffset":                  "{utc: {}}",
	"clock.preferredTimer":                        "{kvm: {present: false}}",
	"cpu.preferredCPUTopology":                    "cores",
	"cpu.spreadOptions":                           "{ratio: 4}",
	"cpu.preferredCPUFeatures":                    "[{name: vmx}]",
	"devices.preferredAutoattachGraphicsDevice":   "false",
	"devices.preferredAutoattachMemBalloon":       "false",
	"devices.preferredAutoattachPodInterface":     "false",
	"devices.preferredAutoattachSerialConsole":    "false",
	"devices.preferredAutoattachInputDevice":      "true",
	"devices.preferredDisableHotplug":             "true",
	"devices.preferredVirtualGPUOptions":          "{display: {enabled: true}}",
	"devices.preferredSoundModel":                 "ac97",
	"devices.preferredUseVirtioTransitional":      "true",
	"devices.preferredInputBus":                   "virtio",
	"devices.preferredInputType":                  "tablet",
	"devices.preferredDiskBus":                    "scsi",
	"devices.preferredLunBus":                     "scsi",
	"devices.preferredCdromBus":                   "scsi",
	"devices.preferredDiskDedicatedIoThread":      "true",
	"devices.preferredDiskCache":                  "none",
	"devices.preferredDiskIO":                     "threads",
	"devices.preferredDiskBlockSize":              "{custom: {logical: 512, physical: 512}}",
	"devices.preferredInterfaceModel":             "e1000",
	"devices.preferredRng":                        "{}",
	"devices.preferredBlockMultiQueue":            "true",
	"devices.preferredNetworkInterfaceMultiQueue": "true",
	"devices.preferredTPM":                        "{}",
	"devices.preferredInterfaceMasquerade":        "{}",
	"devices.preferredPanicDeviceModel":           "isa",
	"features.preferredAcpi":                      "{enabled: false}",
	"features.preferredApic":                      "{}",
	"features.preferredHyperv":                    "{}",
	"features.preferredKvm":                       "{hidden: true}",
	"features.preferredPvspinlock":                "{enabled: false}",
	"features.preferredSmm":                       "{}",
	"firmware.preferredUseBios":                   "true",
	"firmware.preferredUseBiosSerial":             "true",
	"firmware.preferredUseEfi":                    "true",
	"firmware.preferredUseSecureBoot":             "false",
	"firmware.preferredEfi":                       "{}",
	"machine.preferredMachineType":                "pc-q35-9.2",
	"volumes.preferredStorageClassName":           "fast",
	"preferredSubdomain":                          "s",
	"preferredTerminationGracePeriodSeconds":      "5",
	"requirements.cpu":                            "{guest: 99}",
	"requirements.memory":                         "{guest: 99Gi}",
	"requirements.architecture":                   "s390x",
	"annotations":                                 "{a: b}",
	"preferSpreadSocketToCoreRatio":               "4",
	"preferredArchitecture":                       "amd64",
}

// beside is what a field needs beside it to mean something.
var beside = map[string]string{
	"cpu.spreadOptions":                      "cpu: {preferredCPUTopology: spread}",
	"preferSpreadSocketToCoreRatio":          "cpu: {preferredCPUTopology: spread}",
	"firmware.preferredUseBiosSerial":        "firmware: {preferredUseBios: true}",
	"firmware.preferredUseSecureBoot":        "firmware: {preferredUseEfi: true}",
	"devices.preferredInputBus":              "devices: {preferredAutoattachInputDevice: true}",
	"devices.preferredInputType":             "devices: {preferredAutoattachInputDevice: true}",
	"requirements.architecture":              "preferredArchitecture: amd64",
	"devices.preferredDiskDedicatedIoThread": "devices: {preferredDiskBus: virtio}",
}

// instancetypes is preferences for an instance type.
var instancetypes = map[string]string{
	"cpu.guest":                 "4",
	"cpu.model":                 "Nehalem",
	"cpu.dedicatedCPUPlacement": "true",
	"cpu.numa":                  "{guestMappingPassthrough: {}}",
	"cpu.isolateEmulatorThread": "true",
	"cpu.realtime":              "{mask: '0'}",
	"cpu.maxSockets":            "16",
	"memory.guest":              "2Gi",
	"memory.hugepages":          "{pageSize: 2Mi}",
	"memory.overcommitPercent":  "10",
	"memory.maxGuest":           "8Gi",
	"nodeSelector":              "{a: b}",
	"schedulerName":             "mine",
	"gpus":                      "[{name: g2, deviceName: x}]",
	"hostDevices":               "[{name: h, deviceName: x}]",
	"ioThreadsPolicy":           "shared",
	"ioThreads":                 "{supplementalPoolThreadCount: 2}",
	"launchSecurity":            "{sev: {}}",
	"annotations":               "{a: b}",
}

// fieldsOf are the fields of a spec: those of its sections, and its own that are none.
func fieldsOf(t reflect.Type, prefix string) []string {
	var out []string
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		of := f.Type
		if of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		if prefix == "" && of.Kind() == reflect.Struct &&
			of.PkgPath() == reflect.TypeFor[v1beta1.CPUPreferences]().PkgPath() {
			out = append(out, fieldsOf(of, name+".")...)
			continue
		}
		out = append(out, prefix+name)
	}
	return out
}

const effectBase = "{cpu: {guest: 8}, memory: {guest: 1Gi}}"

// TestEveryFieldHasAnEffect walks the types: whatever field is set, something that is made of a VM changes. A field
// that a newer API has and nobody honours fails here.
func TestEveryFieldHasAnEffect(t *testing.T) {
	for _, f := range fieldsOf(reflect.TypeFor[v1beta1.VirtualMachinePreferenceSpec](), "") {
		t.Run("preference "+f, func(t *testing.T) {
			if preferences[f] == "" {
				t.Fatal("no example: honour the field, or refuse it when the preference is admitted")
			}
			without := set(t, beside[f], "", "")
			if made(t, effectBase, without) == made(t, effectBase, set(t, beside[f], f, preferences[f])) {
				t.Errorf("%s changes nothing", preferences[f])
			}
		})
	}
	for _, f := range fieldsOf(reflect.TypeFor[v1beta1.VirtualMachineInstancetypeSpec](), "") {
		t.Run("instance type "+f, func(t *testing.T) {
			if instancetypes[f] == "" {
				t.Fatal("no example: honour the field, or refuse it when the instance type is admitted")
			}
			if made(t, effectBase, "") == made(t, set(t, effectBase, f, instancetypes[f]), "") {
				t.Errorf("%s changes nothing", instancetypes[f])
			}
		})
	}
}

// set is a document with a field.
func set(t *testing.T, document, path, value string) string {
	t.Helper()
	tree := *parse[map[string]any](t, document)
	if tree == nil {
		tree = map[string]any{}
	}
	if path != "" {
		at, name := tree, path
		if section, rest, ok := strings.Cut(path, "."); ok {
			if tree[section] == nil {
				tree[section] = map[string]any{}
			}
			at, name = tree[section].(map[string]any), rest
		}
		at[name] = *parse[any](t, value)
	}
	out, err := yaml.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// made is what becomes of a VM that leaves much open, as text.
func made(t *testing.T, it, preference string) string {
	t.Helper()
	vm := &v1.VirtualMachine{}
	vm.Spec.DataVolumeTemplates = []v1.DataVolumeTemplateSpec{
		{Spec: cdiv1.DataVolumeSpec{Storage: &cdiv1.StorageSpec{}}},
		{Spec: cdiv1.DataVolumeSpec{PVC: &corev1.PersistentVolumeClaimSpec{}}},
	}
	vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{Spec: *parse[v1.VirtualMachineInstanceSpec](t,
		`{domain: {devices: {disks: [{name: disk, disk: {}}, {name: cd, cdrom: {}}, {name: lun, lun: {}}], interfaces: [{name: default}],
		  panicDevices: [{}], sound: {name: s}}}, networks: [{name: default, pod: {}}], volumes: [{name: disk}, {name: cd}, {name: lun}]}`)}
	if strings.Contains(preference, "preferredAutoattachPodInterface") {
		vm.Spec.Template.Spec.Domain.Devices.Interfaces, vm.Spec.Template.Spec.Networks = nil, nil
	}
	if strings.Contains(preference, "preferredVirtualGPUOptions") {
		vm.Spec.Template.Spec.Domain.Devices.GPUs = []v1.GPU{{Name: "g"}}
	}
	r := resolved(t, it, preference)
	if r.Preference != nil {
		PreferStorageClass(r.Preference.Preference, vm)
	}
	template, errs := Expand(vm, r)
	return fmt.Sprint(text(t, template), text(t, vm.Spec.DataVolumeTemplates), errs.ToAggregate())
}

package backup

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/ipaddress"
	"github.com/virtkit/virtkit/pkg/vm/macaddress"
	"github.com/virtkit/virtkit/pkg/vm/reserved"
)

func exampleFile(t *testing.T) *File {
	t.Helper()
	f, err := open(example(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// A file becomes a VM with claims of its own and the volumes that are made anew; a claim that is not in the file is not
// used, whoever has its name there. The VM is another guest, and stopped.
func TestMake(t *testing.T) {
	made, err := exampleFile(t).Make(Wish{
		Namespace: "ns", Name: "new", StorageClass: "slow", AccessMode: "ReadWriteOnce",
	})
	if err != nil {
		t.Fatal(err)
	}
	vm, guest := made.VM, &made.VM.Spec.Template.Spec
	if vm.Namespace != "ns" || vm.Name != "new" || vm.Labels["app"] != "web" || vm.Annotations["mine"] != "1" ||
		len(vm.Annotations) != 1 || len(vm.Spec.DataVolumeTemplates) > 0 {
		t.Errorf("%+v", vm.ObjectMeta)
	}
	var volumes []string
	for i := range guest.Volumes {
		volumes = append(volumes, guest.Volumes[i].Name)
	}
	if !slices.Equal(volumes, []string{"root", "data", "init"}) || len(guest.Domain.Devices.Disks) != 3 ||
		len(guest.Domain.Devices.Filesystems) != 0 {
		t.Errorf("volumes %v, devices %+v", volumes, guest.Domain.Devices)
	}
	if root := guest.Volumes[0].PersistentVolumeClaim; root == nil || root.ClaimName != "new-root" ||
		guest.Volumes[0].DataVolume != nil {
		t.Errorf("root is %+v", guest.Volumes[0])
	}
	if data := guest.Volumes[1].PersistentVolumeClaim; data.ClaimName != "new-data" || !data.Hotpluggable {
		t.Errorf("data is %+v", data)
	}
	for _, claim := range made.Claims {
		size := claim.Spec.Resources.Requests[corev1.ResourceStorage]
		if claim.Namespace != "ns" || claim.Labels[LabelImport] == "" || *claim.Spec.StorageClassName != "slow" ||
			claim.Spec.AccessModes[0] != "ReadWriteOnce" || len(claim.Spec.AccessModes) != 1 ||
			size.String() != "64Mi" ||
			*claim.Spec.VolumeMode != corev1.PersistentVolumeBlock {
			t.Errorf("%+v", claim)
		}
	}
	domain := &guest.Domain
	if domain.Firmware.UUID != "" || domain.Firmware.Serial != "" || domain.Devices.Interfaces[0].MacAddress != "" ||
		len(vm.Spec.Template.ObjectMeta.Annotations) > 0 {
		t.Errorf("it is the old guest: %+v, %v", domain, vm.Spec.Template.ObjectMeta.Annotations)
	}
	if strategy, err := vm.RunStrategy(); err != nil || strategy != v1.RunStrategyHalted {
		t.Errorf("run strategy %s: %v", strategy, err)
	}
	said := strings.Join(made.NotIncluded, "\n")
	for _, want := range []string{"volume share (claim share)", "volume lost (claim lost): the VM is made without it"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q lacks %q", said, want)
		}
	}
}

// What the components note on a VM is about its life in its cluster: it gets into no file, and out of none.
func TestAnnotationsOfTheComponents(t *testing.T) {
	note := func(vm *v1.VirtualMachine) {
		for _, key := range reserved.Keys() {
			metav1.SetMetaDataAnnotation(&vm.ObjectMeta, key, "x")
			metav1.SetMetaDataAnnotation(&vm.Spec.Template.ObjectMeta, key, "x")
		}
	}
	file := exampleFile(t)
	note(file.VM)
	made, err := file.Make(Wish{Namespace: "ns", Name: "new"})
	if err != nil {
		t.Fatal(err)
	}
	exported := exampleFile(t).VM
	note(exported)
	for what, vm := range map[string]*v1.VirtualMachine{"the file": stored(exported), "the import": made.VM} {
		for _, of := range []map[string]string{vm.Annotations, vm.Spec.Template.ObjectMeta.Annotations} {
			if key := reserved.Changed(of, nil); key != "" {
				t.Errorf("%s has %s", what, key)
			}
		}
	}
}

// The MAC addresses that a VM has by its record go along with its identity, to whatever name and namespace; a record
// that it has from a VM that it was copied from does not get into the file.
func TestKeepRecordedMACs(t *testing.T) {
	f := exampleFile(t)
	const record = `{"vm":"shop/demo","interfaces":{"default":"02:00:00:00:00:05"}}`
	vm := f.VM.DeepCopy()
	vm.Namespace, vm.Annotations = "shop", map[string]string{macaddress.Annotation: record}
	f.VM = stored(vm)
	kept, err := f.Make(Wish{Namespace: "ns", Name: "new", KeepIdentity: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := macaddress.Recorded(kept.VM); got["default"] != "02:00:00:00:00:05" {
		t.Errorf("kept: %v, %v", got, kept.VM.Annotations)
	}
	fresh, err := f.Make(Wish{Namespace: "shop", Name: "demo"})
	if err != nil || fresh.VM.Annotations[macaddress.Annotation] != "" {
		t.Errorf("not kept: %v, %v", fresh.VM.Annotations, err)
	}
	vm.Name = "copy"
	if got := stored(vm).Annotations[macaddress.Annotation]; got != "" {
		t.Errorf("of another: %s", got)
	}
}

// With its identity kept it is the same guest also under another name.
func TestKeepIdentity(t *testing.T) {
	f := exampleFile(t)
	f.VM.Spec.Template.Spec.Domain.Firmware.UUID = ""
	f.VM.Spec.Template.ObjectMeta.Annotations = nil
	made, err := f.Make(Wish{Namespace: "ns", Name: "new", KeepIdentity: true})
	if err != nil {
		t.Fatal(err)
	}
	template := made.VM.Spec.Template
	if f := template.Spec.Domain.Firmware; f.Serial != "s" || f.UUID == "" ||
		template.Spec.Domain.Devices.Interfaces[0].MacAddress != "02:00:00:00:00:01" ||
		template.ObjectMeta.Annotations["virtkit.io/known-as"] != "demo" {
		t.Errorf("%+v, %v", f, template.ObjectMeta.Annotations)
	}
	same, err := f.Make(Wish{Namespace: "ns", KeepIdentity: true})
	if err != nil {
		t.Fatal(err)
	}
	if same.VM.Name != "demo" || len(same.VM.Spec.Template.ObjectMeta.Annotations) > 0 ||
		same.Claims[0].Name != "demo-"+f.Index.Disks[0].Volume {
		t.Errorf("under its own name %+v", same.VM)
	}
}

// --start starts a VM by the strategy that it had, or that starts it; without it none starts.
func TestStrategy(t *testing.T) {
	for before, want := range map[v1.VirtualMachineRunStrategy][2]v1.VirtualMachineRunStrategy{
		v1.RunStrategyAlways:         {v1.RunStrategyHalted, v1.RunStrategyAlways},
		v1.RunStrategyHalted:         {v1.RunStrategyHalted, v1.RunStrategyAlways},
		v1.RunStrategyManual:         {v1.RunStrategyManual, v1.RunStrategyManual},
		v1.RunStrategyRerunOnFailure: {v1.RunStrategyHalted, v1.RunStrategyRerunOnFailure},
		v1.RunStrategyOnce:           {v1.RunStrategyHalted, v1.RunStrategyOnce},
	} {
		for i, start := range []bool{false, true} {
			f := exampleFile(t)
			f.VM.Spec.RunStrategy = &before
			made, err := f.Make(Wish{Namespace: "ns", Start: start})
			if err != nil {
				t.Fatal(err)
			}
			if got := *made.VM.Spec.RunStrategy; got != want[i] || made.asked != (start && before == "Manual") {
				t.Errorf("%s, start %t: %s, asked %t", before, start, got, made.asked)
			}
		}
	}
}

// A disk that does not fit on a claim of the size that it had, with its file system, gets a larger one.
func TestClaimSize(t *testing.T) {
	for _, test := range []struct {
		mode, size string
		disk       int64
		want       string
	}{
		{"Filesystem", "64Mi", 60 << 20, "64Mi"},
		{"Filesystem", "64Mi", 64 << 20, "69Mi"},
		{"Block", "64Mi", 64 << 20, "64Mi"},
		{"Block", "64Mi", 65 << 20, "65Mi"},
		{"Filesystem", "100Mi", 64 << 20, "100Mi"},
	} {
		disk := Disk{VolumeMode: test.mode, ClaimSize: test.size, DiskSize: test.disk}
		claim := disk.make(Wish{})
		size := claim.Spec.Resources.Requests[corev1.ResourceStorage]
		if size.String() != test.want || claim.Spec.StorageClassName != nil {
			t.Errorf("%+v: %s", test, size.String())
		}
	}
}

// The same of IP addresses; a wish for some is not taken over where the identity is not.
func TestKeepRecordedIPs(t *testing.T) {
	f := exampleFile(t)
	vm := f.VM.DeepCopy()
	vm.Namespace, vm.Annotations = "shop", map[string]string{
		ipaddress.Annotation: `{"vm":"shop/demo","interfaces":{"red":{"network":"shop/red","addresses":["192.0.2.7"]}}}`,
	}
	vm.Spec.Template.ObjectMeta.Annotations = map[string]string{ipaddress.Wish: `{"red":["192.0.2.9"]}`}
	f.VM = stored(vm)
	kept, err := f.Make(Wish{Namespace: "ns", Name: "new", KeepIdentity: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := ipaddress.Recorded(kept.VM)["red"].Addresses; len(got) != 1 ||
		kept.VM.Spec.Template.ObjectMeta.Annotations[ipaddress.Wish] == "" {
		t.Errorf("kept: %v, %v", got, kept.VM.Annotations)
	}
	fresh, err := f.Make(Wish{Namespace: "shop", Name: "demo"})
	if err != nil || fresh.VM.Annotations[ipaddress.Annotation] != "" ||
		fresh.VM.Spec.Template.ObjectMeta.Annotations[ipaddress.Wish] != "" {
		t.Errorf("not kept: %v, %v", fresh.VM.Annotations, err)
	}
	vm.Name = "copy"
	if got := stored(vm).Annotations[ipaddress.Annotation]; got != "" {
		t.Errorf("of another: %s", got)
	}
}

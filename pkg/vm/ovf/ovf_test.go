package ovf

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the golden files anew")

func read(t *testing.T, name string) *v1.VirtualMachine {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	vm := &v1.VirtualMachine{}
	if err := yaml.UnmarshalStrict(text, vm); err != nil {
		t.Fatal(err)
	}
	return vm
}

// TestDescribe compares descriptors with golden files: of a VM with all that an OVF says, of one that says nothing, and
// of one with more disks than IDE takes.
func TestDescribe(t *testing.T) {
	for _, name := range []string{"full", "small", "disks"} {
		vm := read(t, name)
		var disks []Disk
		for i, volume := range Volumes(&vm.Spec.Template.Spec) {
			suffix := ".vmdk"
			if volume.CDROM {
				suffix = ".iso"
			}
			disks = append(disks, Disk{
				Volume: volume.Name, File: volume.Claim + suffix, Bytes: int64(i+1) << 20, Capacity: int64(i+1) << 30,
			})
		}
		got, err := Describe(vm, disks, MACs(vm))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join("testdata", name+".ovf")
		if *update {
			if err := os.WriteFile(path, got, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("%s:\n%s", name, got)
		}
	}
}

// What the guest boots from is first, a claim is there once, and file systems and what is on no claim are none of it,
// but are said.
func TestVolumes(t *testing.T) {
	spec := &read(t, "full").Spec.Template.Spec
	volumes := Volumes(spec)
	want := []Volume{{"root", "full-root", false}, {"data", "full-data", false}, {"tools", "full-tools", true}}
	if !slices.Equal(volumes, want) {
		t.Errorf("%+v", volumes)
	}
	said := strings.Join(NotIncluded(spec, volumes[1:]), "\n")
	for _, name := range []string{
		"volume seed,", "volume share,", "volume root,", "its TPM", "GPU gpu", "host device nic", "its watchdog",
		"its sound card",
	} {
		if !strings.Contains(said, name) {
			t.Errorf("nothing is said of %s:\n%s", name, said)
		}
	}
	if strings.Contains(said, "data") || strings.Contains(said, "tools") {
		t.Errorf("what is in it is said not to be:\n%s", said)
	}
	if said := NotIncluded(&v1.VirtualMachineInstanceSpec{}, nil); said != nil {
		t.Errorf("of nothing %q is said", said)
	}
}

func TestManifest(t *testing.T) {
	got := Manifest([]Sum{{"a.ovf", "01"}, {"a-disk1.vmdk", "23"}})
	if string(got) != "SHA256(a.ovf)= 01\nSHA256(a-disk1.vmdk)= 23\n" {
		t.Errorf("%s", got)
	}
}

// Another VM's addresses, and a record that is none, are not this one's.
func TestMACs(t *testing.T) {
	vm := read(t, "full")
	if got := MACs(vm)["storage"]; got != "02:00:00:00:00:02" {
		t.Errorf("%q", got)
	}
	for _, other := range []string{`{"vm":"ns/other","interfaces":{"storage":"02:00:00:00:00:02"}}`, "{", ""} {
		vm.Annotations["virtkit.io/mac-addresses"] = other
		if got := MACs(vm); got != nil {
			t.Errorf("of %q: %v", other, got)
		}
	}
}

func TestSystem(t *testing.T) {
	vm := read(t, "small")
	for is, want := range map[string]string{
		"windows.11": "windows11_64Guest", "windows2k19": "windows2019srv_64Guest", "windows": "windows9_64Guest",
		"Debian.12": "debian10_64Guest", "rhel-9": "rhel7_64Guest", "beos": "otherGuest64", "": "otherGuest64",
	} {
		vm.Annotations = map[string]string{AnnotationOS: is}
		if got := osOf(vm); got.VMware != want || is != "" && got.Description != is {
			t.Errorf("%s: %+v", is, got)
		}
	}
}

// An odd size of memory is rounded up to what the unit can say.
func TestMemory(t *testing.T) {
	vm := read(t, "small")
	odd := resource.MustParse("1000000001")
	vm.Spec.Template.Spec.Domain.Memory = &v1.Memory{Guest: &odd}
	text, err := Describe(vm, nil, nil)
	if err != nil || !strings.Contains(string(text), "<rasd:VirtualQuantity>954</rasd:VirtualQuantity>") {
		t.Errorf("%v\n%s", err, text)
	}
}

package foreign

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/client/action/backup"
	"github.com/virtkit/virtkit/pkg/vm/surface"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// readAs reads a descriptor of testdata.
func readAs(t testing.TB, name string) *Machine {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	m, err := read(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return m
}

// read reads a descriptor of either kind.
func read(text []byte) (*Machine, error) {
	root, err := parseTree(text)
	if err != nil {
		return nil, err
	}
	if root.name == "domain" {
		return readDomain(root)
	}
	return readOVF(root)
}

func TestGolden(t *testing.T) {
	memory := resource.MustParse("3Gi")
	for name, test := range map[string]struct {
		file string
		wish Wish
	}{
		"vmware": {"vmware.ovf", Wish{}},
		"vmware-wish": {"vmware.ovf", Wish{
			Wish:     backup.Wish{Namespace: "shop", Name: "shop", KeepIdentity: true, Start: true},
			Networks: map[string]string{"Storage": "shop/storage", "": "pod"}, DiskBus: "virtio", Firmware: "bios",
			CPUs: 3, Memory: &memory,
		}},
		"virtualbox":          {"virtualbox.ovf", Wish{Wish: backup.Wish{KeepIdentity: true}}},
		"virt-v2v":            {"virt-v2v.ovf", Wish{}},
		"linux":               {"linux.xml", Wish{Wish: backup.Wish{KeepIdentity: true}}},
		"linux-networks":      {"linux.xml", Wish{Networks: map[string]string{"default": "none", "br1": "lan"}}},
		"windows":             {"windows.xml", Wish{Wish: backup.Wish{Name: "office"}}},
		"windows-no-networks": {"windows.xml", Wish{Networks: map[string]string{"": "none"}}},
	} {
		t.Run(name, func(t *testing.T) {
			vm, said, err := readAs(t, test.file).VM(test.wish)
			if err != nil {
				t.Fatal(err)
			}
			admitted(t, vm)
			got, err := yaml.Marshal(map[string]any{"vm": vm, "said": said})
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", name+".yaml")
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("%s, -want +got; -update rewrites it\n%s", golden, diff)
			}
		})
	}
}

// admitted fails unless virt-api would take a VM.
func admitted(t testing.TB, vm *v1.VirtualMachine) {
	t.Helper()
	vm = vm.DeepCopy()
	surface.DefaultVirtualMachine(vm, nil, surface.Defaults{})
	if errs := surface.ValidateVirtualMachine(vm, surface.Defaults{}); len(errs) > 0 {
		t.Errorf("the VM is refused: %v", errs.ToAggregate())
	}
}

func TestWishes(t *testing.T) {
	var wish *WishError
	_, _, err := readAs(t, "linux.xml").VM(Wish{Networks: map[string]string{"br7": "lan"}})
	if !errors.As(err, &wish) ||
		!strings.Contains(err.Error(), `no interface in a network "br7"; there are "br1", "default"`) {
		t.Errorf("a network that there is not: %v", err)
	}
	_, _, err = (&Machine{Name: "???"}).VM(Wish{})
	if !errors.As(err, &wish) || !strings.Contains(err.Error(), "--name") {
		t.Errorf("a name that is none: %v", err)
	}
	vm, said, err := (&Machine{Name: "bare"}).VM(Wish{})
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(said, "\n"); !strings.Contains(text, "--cpu") || !strings.Contains(text, "--memory") {
		t.Errorf("what is not known is not said: %s", text)
	}
	admitted(t, vm)
}

// TestRefusedDescriptors tries descriptors that must not become a VM, each with what is said.
func TestRefusedDescriptors(t *testing.T) {
	ovf := func(body string) string { return "<Envelope>" + body + "</Envelope>" }
	system := func(items string) string {
		return ovf("<References><File id='f' href='d.vmdk'/></References><DiskSection><Disk diskId='d' fileRef='f' " +
			"capacity='1'/></DiskSection><VirtualSystem id='a'><VirtualHardwareSection>" + items +
			"</VirtualHardwareSection></VirtualSystem>")
	}
	domain := func(body string) string { return "<domain><name>a</name>" + body + "</domain>" }
	disk := func(body string) string { return domain("<devices><disk " + body + "</disk></devices>") }
	item := func(kind, rest string) string {
		return "<Item><ResourceType>" + kind + "</ResourceType>" + rest + "</Item>"
	}
	for text, want := range map[string]string{
		"": "is empty",
		"<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>": "document type",
		"<a>&b;</a>":              "no XML",
		strings.Repeat("<a>", 70): "in each other",
		"<a>" + strings.Repeat("<b/>", maxNodes) + "</a>": "more than 65536 elements",
		"<a/><b/>":                              "more than one root",
		"<other/>":                              "no OVF",
		ovf(""):                                 "no VirtualSystem",
		ovf("<VirtualSystem/><VirtualSystem/>"): "several VMs",
		ovf("<VirtualSystemCollection/>"):       "several VMs",
		ovf("<VirtualSystem/>"):                 "0 VirtualHardwareSections",
		ovf("<References><File href='../x'/></References><VirtualSystem/>"):                    "leads out",
		ovf("<References><File href='/etc/shadow'/></References><VirtualSystem/>"):             "leads out",
		ovf("<References><File href='a\\..\\b'/></References><VirtualSystem/>"):                "leads out",
		ovf("<References><File href='https://h/x'/></References><VirtualSystem/>"):             "nothing is downloaded",
		ovf("<References><File id='x'/></References><VirtualSystem/>"):                         "no href",
		ovf("<References><File href='x' chunkSize='7'/></References><VirtualSystem/>"):         "in chunks",
		ovf("<References><File href='x' compression='xz'/></References><VirtualSystem/>"):      `compression "xz"`,
		ovf("<DiskSection><Disk diskId='a' parentRef='b'/></DiskSection><VirtualSystem/>"):     "difference to another",
		ovf("<DiskSection><Disk diskId='a'/><Disk diskId='a'/></DiskSection><VirtualSystem/>"): "twice",
		ovf("<DiskSection><Disk/></DiskSection><VirtualSystem/>"):                              "no diskId",
		system(item("17", "<HostResource>/disk/e</HostResource>")):                             "no disk disk/e",
		system(item("17", "<HostResource>/file/e</HostResource>")):                             "no file file/e",
		system(item("17", "")): "names no disk",
		system(item("4", "<VirtualQuantity>x</VirtualQuantity>")):                       "no size",
		system(item("4", "<AllocationUnits>barn</AllocationUnits>")):                    "no unit",
		system(item("4", "<VirtualQuantity>9223372036854775807</VirtualQuantity>")):     "no size of a VM",
		system(item("3", "<VirtualQuantity>4294967295</VirtualQuantity>")):              "more than a VM has",
		system(strings.Repeat(item("17", "<HostResource>/disk/d</HostResource>"), 300)): "300 disks",
		system(strings.Repeat(item("10", ""), 300)):                                     "300 network interfaces",
		domain("<memory unit='parsec'>3</memory>"):                                      "no size",
		domain("<os><type>xen</type></os>"):                                             "whole machines",
		domain("<os><type arch='aarch64'>hvm</type></os>"):                              "x86_64",
		disk("type='block'><source dev='/dev/sda'/><target dev='vda'/>"):                "only files",
		disk("type='network'><source protocol='rbd'/><target dev='vda'/>"):              "only files",
		disk("type='file'><target dev='vda'/>"):                                         "names no file",
		disk("type='file'><driver type='qed'/><source file='/a'/><target dev='vda'/>"):  "qemu-img convert",
		disk("type='file'><source file='/a'><encryption/></source><target dev='vda'/>"): "encrypted",
	} {
		_, err := read([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.120s\n\tgot %v, want %q", text, err, want)
		}
	}
}

func TestUnits(t *testing.T) {
	for text, want := range map[string]int64{
		"": 1, "byte": 1, "byte * 2^30": 1 << 30, "byte*2^20": 1 << 20, "byte * 10^6": 1e6, "MegaBytes": 1 << 20,
		"GB": 1 << 30, "byte * 2^60": 0, "byte * 3^2": 0, "byte * 2": 0, "hertz * 10^6": 0, "byte * 2^-1": 0,
	} {
		got, err := unitOf(text)
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
	}
}

// FuzzDescriptor reads whatever a stranger calls an OVF or a domain. What becomes a VM is one that the API server would
// look at, and names files of the archive only.
func FuzzDescriptor(f *testing.F) {
	for _, name := range []string{"vmware.ovf", "virtualbox.ovf", "virt-v2v.ovf", "linux.xml", "windows.xml"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		root, err := parseTree(text)
		if err != nil {
			return
		}
		m, err := readOVF(root)
		local := err == nil
		if err != nil {
			if m, err = readDomain(root); err != nil {
				return
			}
		}
		for i := range m.Disks {
			if file := m.Disks[i].File; local && file != "" && !filepath.IsLocal(file) {
				t.Errorf("disk %d is %q", i, file)
			}
		}
		if vm, _, err := m.VM(Wish{Wish: backup.Wish{KeepIdentity: true}}); err == nil {
			admitted(t, vm)
		}
	})
}

package disk

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

var configMap = v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}

// What the kubelet makes of a ConfigMap, with its links, and of a downward API volume, with directories.
func TestLookConfiguration(t *testing.T) {
	dirs := podDirs(t)
	volume := filepath.Join(dirs.Secrets, "vol")
	if err := os.MkdirAll(filepath.Join(volume, "..2026_11_21/sub/deeper"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, volume+"/..2026_11_21/key", []byte("value"))
	write(t, volume+"/..2026_11_21/sub/deeper/labels", []byte(`app="web"`))
	for _, link := range [][2]string{{"..2026_11_21", "..data"}, {"..data/key", "key"}, {"..data/sub", "sub"}} {
		if err := os.Symlink(link[0], filepath.Join(volume, link[1])); err != nil {
			t.Fatal(err)
		}
	}
	vmi := vmiWith(asCDRom, configMap)
	facts, err := inspect(vmi, dirs)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]byte{"key": []byte("value"), "sub/deeper/labels": []byte(`app="web"`)}
	if diff := cmp.Diff(want, facts["vol"].Files); diff != "" {
		t.Error(diff)
	}
	if err := os.MkdirAll(filepath.Join(volume, "1/2/3/4/5/6/7"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, volume+"/1/2/3/4/5/6/7/8", nil)
	if _, err := inspect(vmi, dirs); !errors.Is(err, ErrInvalid) ||
		!strings.Contains(err.Error(), `volume "vol": file name "1/2/3/4/5/6/7/" has more than 7 parts`) {
		t.Errorf("too deep: %v", err)
	}
}

// The label is the volume's, and the disk is one that the guest cannot write where there is such a thing.
func TestConfigurationPlan(t *testing.T) {
	sata := v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusSATA}}
	for name, tc := range map[string]struct {
		device   v1.DiskDevice
		source   v1.VolumeSource
		label    string
		readOnly bool
	}{
		"config map": {asDisk, configMap, "cfgdata", true},
		"labelled": {
			asCDRom, v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{VolumeLabel: "OEMDRV"}}, "OEMDRV", true,
		},
		"secret": {sata, v1.VolumeSource{Secret: &v1.SecretVolumeSource{VolumeLabel: "cidata"}}, "cidata", false},
		"downward API": {
			asDisk, v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{VolumeLabel: "down"}}, "down", true,
		},
		"service account": {asDisk, v1.VolumeSource{ServiceAccount: &v1.ServiceAccountVolumeSource{}}, "cfgdata", true},
	} {
		t.Run(name, func(t *testing.T) {
			plan, err := NewPlan(vmiWith(tc.device, tc.source), Dirs{Disks: "/disks"},
				map[string]Facts{"vol": {Files: map[string][]byte{"a": []byte("b")}}})
			if err != nil {
				t.Fatal(err)
			}
			if len(plan.Steps) != 1 || plan.Steps[0].Path != "/disks/vol.iso" {
				t.Fatalf("%+v", plan.Steps)
			}
			if label := strings.TrimRight(string(plan.Steps[0].Data[sectorPrimary*isoSector+40:][:32]),
				" "); label != tc.label {
				t.Errorf("label %q, want %q", label, tc.label)
			}
			if got := plan.Sources["vol"].ReadOnly; got != tc.readOnly {
				t.Errorf("read-only: %t", got)
			}
		})
	}
}

func TestEphemeral(t *testing.T) {
	source := v1.VolumeSource{
		Ephemeral: &v1.EphemeralVolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "golden"},
		},
	}
	for name, tc := range map[string]struct {
		vmi   *v1.VirtualMachineInstance
		facts Facts
	}{
		"ephemeral":       {vmiWith(asDisk, source), Facts{Exists: true, Size: 1 << 20}},
		"ephemeral-block": {vmiWith(asDisk, source), Facts{Block: true, Size: 1 << 30}},
		"ephemeral-cdrom": {vmiWith(asCDRom, source), Facts{Exists: true, Size: 1 << 20}},
	} {
		plan, err := NewPlan(tc.vmi, Dirs{Disks: "/disks", Claims: "/claims", BlockDevices: "/dev/block"},
			map[string]Facts{"vol": tc.facts})
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.MarshalIndent(plan, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name+".json", string(b)+"\n")
	}

	dirs := podDirs(t)
	if _, err := inspect(vmiWith(asDisk, source), dirs); !errors.Is(err, ErrInvalid) ||
		!strings.Contains(err.Error(), "claim golden has no disk.img") {
		t.Errorf("without an image: %v", err)
	}
	write(t, dirs.Claims+"/vol/disk.img", make([]byte, 1000))
	facts, err := inspect(vmiWith(asDisk, source), dirs)
	if err != nil || facts["vol"].Size != 1024 {
		t.Errorf("%+v, %v", facts["vol"], err)
	}
}

func TestFindKernel(t *testing.T) {
	dirs := Dirs{KernelBoot: t.TempDir()}
	if err := os.MkdirAll(dirs.KernelBoot+"/boot", 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, dirs.KernelBoot+"/boot/vmlinuz", []byte("k"))
	if err := os.Symlink("vmlinuz", dirs.KernelBoot+"/boot/link"); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		kernel, initrd, want string
	}{
		{"/boot/vmlinuz", "", ""},
		{
			"/boot/vmlinuz", "/boot/initrd",
			"firmware.kernelBoot.container.initrdPath: image k: there is no file /boot/initrd",
		},
		{"/boot/link", "", "kernelPath: image k: /boot/link is not a regular file"},
		{"/../../boot/vmlinuz", "", ""},
		{"/boot", "", "/boot is not a regular file"},
	} {
		vmi := &v1.VirtualMachineInstance{}
		vmi.Spec.Domain.Firmware = &v1.Firmware{
			KernelBoot: &v1.KernelBoot{
				Container: &v1.KernelBootContainer{Image: "k", KernelPath: tc.kernel, InitrdPath: tc.initrd},
			},
		}
		got, err := FindKernel(vmi, dirs)
		if tc.want == "" && (err != nil || got.Kernel != dirs.KernelBoot+"/boot/vmlinuz") ||
			tc.want != "" && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%q %q: %+v, %v", tc.kernel, tc.initrd, got, err)
		}
	}
	if got, err := FindKernel(&v1.VirtualMachineInstance{}, dirs); err != nil || got != (Kernel{}) {
		t.Errorf("%+v, %v", got, err)
	}
}

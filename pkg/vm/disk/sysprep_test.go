package disk

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

func TestSysprep(t *testing.T) {
	dirs := Dirs{Secrets: t.TempDir(), Disks: t.TempDir()}
	vmi := &v1.VirtualMachineInstance{}
	vmi.Spec.Volumes = []v1.Volume{{Name: "answers", VolumeSource: v1.VolumeSource{Sysprep: &v1.SysprepSource{}}}}
	vmi.Spec.Domain.Devices.Disks = []v1.Disk{
		{Name: "answers", DiskDevice: v1.DiskDevice{CDRom: &v1.CDRomTarget{Bus: v1.DiskBusSATA}}},
	}
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(dirs.Secrets, "answers", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755),
			os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write("readme.txt", "x")
	write("..data", "how the kubelet swaps files")
	if _, err := inspect(vmi, dirs); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "no answer file") {
		t.Errorf("without an answer file: %v", err)
	}
	write("AutoUnattend.xml", "<unattend/>")
	facts, err := inspect(vmi, dirs)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := NewPlan(vmi, dirs, facts)
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Steps) != 1 || !plan.Sources["answers"].ReadOnly {
		t.Fatalf("%+v", plan)
	}
	image := plan.Steps[0].Data
	if label := strings.TrimSpace(string(image[sectorPrimary*isoSector+40 : sectorPrimary*isoSector+
		72])); !strings.EqualFold(label, "unattendCD") {
		t.Errorf("the label is %q", label)
	}
	for text, want := range map[string]bool{"<unattend/>": true, "AutoUnattend.xml": true, "how the kubelet": false} {
		if bytes.Contains(image, []byte(text)) != want {
			t.Errorf("%q in the image: %v", text, !want)
		}
	}
	for i := range 20 {
		write("f"+strings.Repeat("x", i), "")
	}
	if _, err := inspect(vmi, dirs); !errors.Is(err, ErrInvalid) {
		t.Errorf("too many files: %v", err)
	}
}

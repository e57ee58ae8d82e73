//go:build linux

package foreign

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/backup"
	"github.com/virtkit/virtkit/pkg/exporter"
	"github.com/virtkit/virtkit/pkg/names"
)

// exportOVA writes the OVA that an export's server makes of a VM, whose claims are directories below root.
func exportOVA(t *testing.T, root string, vm *v1.VirtualMachine, claims ...string) string {
	t.Helper()
	manifests, err := json.Marshal(map[string]any{"items": []any{vm}})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"token": "0123456789", "all.json": string(manifests)} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := exporter.Options{
		Name: "e", Token: filepath.Join(root, "token"), Manifests: root, Stall: time.Minute,
		Log: slog.New(slog.DiscardHandler),
	}
	for _, claim := range claims {
		if err := o.Add("disk", claim+"="+filepath.Join(root, claim)); err != nil {
			t.Fatal(err)
		}
	}
	r := httptest.NewRequest(http.MethodGet, names.ExportOVA, nil)
	r.Header.Set(names.HeaderExportToken, "0123456789")
	w := httptest.NewRecorder()
	exporter.NewHandler(o).ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return put(t, "box.ova", w.Body.String())
}

// TestOwnOVA imports the OVA of an export: the VM has the hardware that it had, its disks have each byte, and nothing
// is said to be otherwise.
func TestOwnOVA(t *testing.T) {
	qemuImg, err := exec.LookPath("qemu-img")
	if err != nil {
		t.Skip("there is no qemu-img")
	}
	root := t.TempDir()
	disks := map[string][]byte{
		"root": append(bytes.Repeat([]byte("virtkit!"), 1<<19), make([]byte, 3<<20)...),
		"data": append(make([]byte, 40<<20), []byte(strings.Repeat("end ", 128))...),
		"cd":   bytes.Repeat([]byte("cd"), 5000),
	}
	for claim, data := range disks {
		if err := os.Mkdir(filepath.Join(root, claim), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, claim, "disk.img"), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	memory, one := resource.MustParse("768Mi"), uint(1)
	vm := &v1.VirtualMachine{}
	vm.Kind, vm.Name = "VirtualMachine", "box"
	vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{}
	spec := &vm.Spec.Template.Spec
	spec.Domain.CPU = &v1.CPU{Sockets: 2, Cores: 3, Threads: 1}
	spec.Domain.Memory = &v1.Memory{Guest: &memory}
	spec.Domain.Firmware = &v1.Firmware{Bootloader: &v1.Bootloader{EFI: &v1.EFI{}}}
	spec.Domain.Devices.Disks = []v1.Disk{
		{Name: "data", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusSCSI}}},
		{Name: "cd", DiskDevice: v1.DiskDevice{CDRom: &v1.CDRomTarget{}}},
		{Name: "root", BootOrder: &one, DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}},
	}
	spec.Domain.Devices.Interfaces = []v1.Interface{{Name: "default", MacAddress: "02:00:00:00:00:01"}}
	spec.Networks = []v1.Network{*v1.DefaultPodNetwork()}
	for _, claim := range []string{"data", "cd", "root"} {
		source := &v1.PersistentVolumeClaimVolumeSource{}
		source.ClaimName = claim
		spec.Volumes = append(spec.Volumes,
			v1.Volume{Name: claim, VolumeSource: v1.VolumeSource{PersistentVolumeClaim: source}})
	}
	f, err := opened(t, exportOVA(t, root, vm, "root", "data", "cd"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Verify(t.Context(), nothing); err != nil || len(f.Notes) > 0 {
		t.Errorf("%v %q", err, f.Notes)
	}
	made, err := f.Make(Wish{Wish: backup.Wish{Namespace: "ns", KeepIdentity: true}})
	if err != nil || len(made.NotIncluded) > 0 {
		t.Fatalf("%v %q", err, made.NotIncluded)
	}
	got := &made.VM.Spec.Template.Spec
	var buses []string
	for i := range got.Domain.Devices.Disks {
		disk := &got.Domain.Devices.Disks[i]
		if disk.CDRom != nil {
			buses = append(buses, "cd")
			continue
		}
		buses = append(buses, string(disk.Disk.Bus))
	}
	nic, cpu := got.Domain.Devices.Interfaces[0], got.Domain.CPU
	if cpu.Sockets != 2 || cpu.Cores != 3 || cpu.Threads != 1 || got.Domain.Memory.Guest.Cmp(memory) != 0 ||
		!slices.Equal(buses, []string{"virtio", "scsi", "cd"}) || nic.Model != "virtio" ||
		nic.MacAddress != "02:00:00:00:00:01" || got.Networks[0].Pod == nil ||
		!*got.Domain.Firmware.Bootloader.EFI.SecureBoot {
		t.Errorf("%+v %v %+v", got.Domain, buses, nic)
	}
	payloads := f.Payloads(made)
	for i, claim := range []string{"root", "data", "cd"} {
		image := filepath.Join(t.TempDir(), "image")
		data, err := io.ReadAll(io.NewSectionReader(payloads[i].Image, 0, payloads[i].Image.Size))
		if err != nil {
			t.Fatal(err)
		}
		if claim != "cd" {
			if err := os.WriteFile(image, data, 0o600); err != nil {
				t.Fatal(err)
			}
			convert := exec.Command(qemuImg, "convert", "-f", "vmdk", "-O", "raw", image, image+".raw")
			out, err := convert.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if data, err = os.ReadFile(image + ".raw"); err != nil {
				t.Fatal(err)
			}
		}
		want := disks[claim]
		if !bytes.HasPrefix(data, want) || len(data)-len(want) >= 512 || len(bytes.Trim(data[len(want):], "\x00")) > 0 {
			t.Errorf("%s has %d bytes, and had %d", claim, len(data), len(want))
		}
	}
}

package snapshots

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/snapshot/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/vm/claims"
)

func TestFormer(t *testing.T) {
	former := &Former{}
	if err := yaml.UnmarshalStrict([]byte(`
uid: u
stateVolume: persistent-state-for-vm
state: state
spec:
  template:
    spec:
      domain: {devices: {}}
      volumes:
      - {name: root, dataVolume: {name: root-dv}}
      - {name: data, persistentVolumeClaim: {claimName: data-claim}}
      - {name: dump, memoryDump: {claimName: dump-claim}}
      - {name: seed, emptyDisk: {capacity: 1Gi}}
`), former); err != nil {
		t.Fatal(err)
	}
	if names := ClaimNames(&former.Spec); !slices.Equal(names, []string{"root-dv", "data-claim", "dump-claim"}) {
		t.Errorf("claims %v", names)
	}
	restores := former.Restores()
	if len(restores) != 3 || *restores[0].DataVolumeName != "root-dv" || restores[1].DataVolumeName != nil ||
		restores[2] != (v1beta1.VolumeRestore{
			VolumeName: "persistent-state-for-vm", PersistentVolumeClaimName: "state",
		}) {
		t.Errorf("restores %+v", restores)
	}
	now := metav1.Now()
	there := map[string]*corev1.PersistentVolumeClaim{
		"root-dv": {}, "state": {ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}},
	}
	if lost := Lost(former, there); !slices.Equal(lost, []string{"data-claim", "state"}) {
		t.Errorf("lost %v", lost)
	}
	if names := ClaimNames(&v1.VirtualMachineSpec{}); names != nil {
		t.Errorf("claims of nothing: %v", names)
	}
	for _, bad := range []string{``, `{`, `{}`, `{"uid":"u"}`} {
		if _, err := ReadFormer([]byte(bad)); err == nil || !strings.HasPrefix(err.Error(), "read what the VM was: ") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestKeeps(t *testing.T) {
	for name, tc := range map[string]struct {
		annotations map[string]string
		keeps       bool
	}{
		"says nothing": {nil, false},
		"keeps":        {map[string]string{KeepAnnotation: "true"}, true},
		"does not":     {map[string]string{KeepAnnotation: "false"}, false},
		"takes back":   {map[string]string{UndoAnnotation: "r"}, true},
	} {
		if r := (&v1beta1.VirtualMachineRestore{
			ObjectMeta: metav1.ObjectMeta{Annotations: tc.annotations},
		}); Keeps(r) != tc.keeps {
			t.Errorf("%s: keeps %t", name, Keeps(r))
		}
	}
}

// FuzzReadFormer reads what tenants may have put into a ControllerRevision.
func FuzzReadFormer(f *testing.F) {
	f.Add(
		[]byte(
			`{"uid":"u","spec":{"template":{"spec":{"volumes":[{"name":"a","dataVolume":{"name":"b"}}]}}},"state":"s"}`))
	f.Add([]byte(`{"uid":"u","spec":{"template":{"spec":{"volumes":[{"name":"a","persistentVolumeClaim":null}]}}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		former, err := ReadFormer(data)
		if err != nil {
			return
		}
		names := ClaimNames(&former.Spec)
		for _, r := range former.Restores() {
			if r.PersistentVolumeClaimName == "" ||
				r.PersistentVolumeClaimName != former.State && !slices.Contains(names, r.PersistentVolumeClaimName) {
				t.Errorf("%q: restores %+v of claims %v", data, r, names)
			}
		}
		Lost(former, nil)
	})
}

// TestClaim has the volumes that are a claim, but one that no snapshot has.
func TestClaim(t *testing.T) {
	claim := corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}
	own := v1.PersistentVolumeClaimVolumeSource{PersistentVolumeClaimVolumeSource: claim}
	for name, test := range map[string]struct {
		source v1.VolumeSource
		want   string
	}{
		"claim":      {v1.VolumeSource{PersistentVolumeClaim: &own}, "c"},
		"DataVolume": {v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "d"}}, "d"},
		"memory dump": {v1.VolumeSource{MemoryDump: &v1.MemoryDumpVolumeSource{
			PersistentVolumeClaimVolumeSource: own,
		}}, "c"},
		"ephemeral": {v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{PersistentVolumeClaim: &claim}}, ""},
		"none":      {v1.VolumeSource{EmptyDisk: &v1.EmptyDiskSource{}}, ""},
	} {
		if got := Claim(&v1.Volume{VolumeSource: test.source}); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// A claim that another has now is taken, unless the VM has it still, or shared it before.
func TestTaken(t *testing.T) {
	guest := func(volumes ...v1.Volume) v1.VirtualMachineSpec {
		template := &v1.VirtualMachineInstanceTemplateSpec{}
		template.Spec.Volumes = volumes
		return v1.VirtualMachineSpec{Template: template}
	}
	readOnly := onClaim("readonly", "readonly", false)
	readOnly.PersistentVolumeClaim.ReadOnly = true
	var volumes []v1.Volume
	users := claims.Users{}
	for _, name := range []string{"has", "free", "taken", "shareable", "cd", "ro-disk", "ro-lun", "files", "pod"} {
		volumes = append(volumes, onClaim(name, name, false))
		users[name] = []claims.User{{Name: "beta"}}
	}
	delete(users, "free")
	users["pod"] = []claims.User{{Kind: "pod", Name: "backup"}}
	users["readonly"], users["state"] = []claims.User{{Name: "beta"}}, []claims.User{{Kind: "vmi", Name: "probe"}}
	former := &Former{Spec: guest(append(volumes, readOnly)...), StateVolume: "state-of-vm", State: "state"}
	former.Spec.Template.Spec.Domain.Devices = v1.Devices{
		Disks: []v1.Disk{
			{Name: "taken", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{}}},
			{Name: "shareable", Shareable: new(true)},
			{Name: "cd", DiskDevice: v1.DiskDevice{CDRom: &v1.CDRomTarget{}}},
			{Name: "ro-disk", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{ReadOnly: true}}},
			{Name: "ro-lun", DiskDevice: v1.DiskDevice{LUN: &v1.LunTarget{ReadOnly: true}}},
		},
		Filesystems: []v1.Filesystem{{Name: "files"}},
	}
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "vm"}, Spec: guest(onClaim("has", "has", false))}
	want := []string{"PVC taken is used by VM beta", "PVC state is used by vmi/probe"}
	if got := Taken(former, vm, users); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

package volumemigration

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

func storage(size string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
}

func claimVolume(name, claim string) v1.Volume {
	source := &v1.PersistentVolumeClaimVolumeSource{}
	source.ClaimName = claim
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{PersistentVolumeClaim: source}}
}

func diskOf(name string) v1.Disk {
	return v1.Disk{Name: name, DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}}
}

// running is a VMI whose guest runs with the claims a and b, of 64 MiB each, which one node can use.
func running() *v1.VirtualMachineInstance {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Spec.Volumes = []v1.Volume{claimVolume("one", "a"), claimVolume("two", "b"), {Name: "seed"}}
	vmi.Spec.Domain.Devices.Disks = []v1.Disk{diskOf("one"), diskOf("two"), diskOf("seed")}
	vmi.Status.Phase = v1.Running
	for _, v := range vmi.Spec.Volumes[:2] {
		vmi.Status.VolumeStatus = append(vmi.Status.VolumeStatus, v1.VolumeStatus{
			Name: v.Name, Size: 64 << 20, PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{
				ClaimName:   v.PersistentVolumeClaim.ClaimName,
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			},
		})
	}
	return vmi
}

// template is what the VM of running says with other claims, by volume.
func template(exchanged map[string]string) *v1.VirtualMachineInstanceSpec {
	spec := running().Spec.DeepCopy()
	for i := range spec.Volumes {
		if claim := exchanged[spec.Volumes[i].Name]; claim != "" {
			spec.Volumes[i].PersistentVolumeClaim.ClaimName = claim
		}
	}
	return spec
}

var migration = func() *v1.UpdateVolumesStrategy { s := v1.UpdateVolumesStrategyMigration; return &s }()

var both = map[string]string{"one": "c", "two": "d"}

func claimsOf(volumes []v1.Volume) string {
	var out []string
	for _, v := range volumes {
		if v.PersistentVolumeClaim != nil {
			out = append(out, v.PersistentVolumeClaim.ClaimName)
		}
	}
	return strings.Join(out, " ")
}

func TestFollow(t *testing.T) {
	replacement := v1.UpdateVolumesStrategyReplacement
	copying := func() *v1.VirtualMachineInstance { // both to c and d
		vmi := running()
		vmi.Spec.Volumes = template(both).Volumes
		return vmi
	}
	disk := func(change func(d *v1.Disk)) *v1.VirtualMachineInstance {
		vmi := running()
		change(&vmi.Spec.Domain.Devices.Disks[0])
		return vmi
	}
	for name, c := range map[string]struct {
		strategy *v1.UpdateVolumesStrategy
		vmi      *v1.VirtualMachineInstance
		change   map[string]string
		// takes are the VMI's claims afterwards, refuses a part of the reason for volume one.
		takes, refuses string
		waits          bool
	}{
		"nothing changed":        {strategy: migration, vmi: running()},
		"no strategy":            {vmi: running(), change: both},
		"replacement":            {strategy: &replacement, vmi: running(), change: both},
		"both":                   {strategy: migration, vmi: running(), change: both, takes: "c d"},
		"a local one stays":      {migration, running(), map[string]string{"one": "c"}, "", `"two" stays`, false},
		"another has the claim":  {migration, running(), map[string]string{"one": "b", "two": "d"}, "b d", "", false},
		"both to one":            {migration, running(), map[string]string{"one": "c", "two": "c"}, "", "has P", false},
		"taken back":             {strategy: migration, vmi: copying(), takes: "a b"},
		"taken back as replaced": {strategy: &replacement, vmi: copying(), takes: "a b"},
		"one is taken back":      {migration, copying(), map[string]string{"two": "d"}, "", "only be reverted", false},
		"to a third":             {migration, copying(), map[string]string{"one": "e", "two": "d"}, "", "only", false},
		"shareable": {
			migration, disk(func(d *v1.Disk) { yes := true; d.Shareable = &yes }), both, "", "shareable", false,
		},
		"lun": {
			migration, disk(func(d *v1.Disk) { d.DiskDevice = v1.DiskDevice{LUN: &v1.LunTarget{}} }), both, "",
			"LUN", false,
		},
		"cdrom": {
			migration, disk(func(d *v1.Disk) { d.DiskDevice = v1.DiskDevice{CDRom: &v1.CDRomTarget{}} }), both,
			"", "read-only", false,
		},
		"read-only": {migration, disk(func(d *v1.Disk) { d.Disk.ReadOnly = true }), both, "", "read-only", false},
		"virtiofs": {migration, func() *v1.VirtualMachineInstance {
			vmi := running()
			vmi.Spec.Domain.Devices.Disks = vmi.Spec.Domain.Devices.Disks[1:]
			vmi.Spec.Domain.Devices.Filesystems = []v1.Filesystem{{Name: "one", Virtiofs: &v1.FilesystemVirtiofs{}}}
			return vmi
		}(), both, "", "virtiofs", false},
		"the guest stays": {migration, func() *v1.VirtualMachineInstance {
			vmi := running()
			vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{{
				Type: v1.VirtualMachineInstanceIsStorageLiveMigratable, Status: corev1.ConditionFalse, Message: "a GPU",
			}}
			return vmi
		}(), both, "", "cannot migrate: a GPU", false},
		"an earlier version's": {migration, func() *v1.VirtualMachineInstance {
			vmi := running()
			for i := range vmi.Status.VolumeStatus {
				info := vmi.Status.VolumeStatus[i].PersistentVolumeClaimInfo
				info.ClaimName = ""
			}
			return vmi
		}(), both, "", "not known which claim", false},
		"migrating": {migration, func() *v1.VirtualMachineInstance {
			vmi := running()
			vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{}
			return vmi
		}(), both, "", "", true},
		"the last one is not undone": {migration, func() *v1.VirtualMachineInstance {
			vmi := running()
			vmi.Status.MigratedVolumes = []v1.StorageMigratedVolumeInfo{{VolumeName: "one"}}
			return vmi
		}(), both, "", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			got := Follow(c.strategy, template(c.change), c.vmi)
			if claimsOf(got.Volumes) != c.takes || got.Waiting != c.waits {
				t.Errorf("%+v", got)
			}
			why := got.Refused["volumes[one]"]
			if c.refuses == "" && len(got.Refused) > 0 || !strings.Contains(why, c.refuses) {
				t.Errorf("refused: %v", got.Refused)
			}
		})
	}
}

func found(name, size string, mode corev1.PersistentVolumeMode) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}}
	claim.Spec.Resources.Requests, claim.Spec.VolumeMode = storage(size), &mode
	return claim
}

// The way of a guest's volumes to other claims, as its status tells it.
func TestWay(t *testing.T) {
	vmi := running()
	if Pending(vmi) || !Described(vmi) {
		t.Fatal("nothing is under way yet")
	}
	vmi.Spec.Volumes = template(both).Volumes
	if !Pending(vmi) || Described(vmi) {
		t.Fatal("what is under way is not described yet")
	}
	if disks, err := Leaving(vmi); err == nil {
		t.Fatalf("a guest leaves with %v before its new claims are known", disks)
	}
	claims := map[string]*corev1.PersistentVolumeClaim{
		"c": found("c", "64Mi", corev1.PersistentVolumeBlock),
		"d": found("d", "1Gi", corev1.PersistentVolumeFilesystem),
	}
	for _, wrong := range []struct {
		claim *corev1.PersistentVolumeClaim
		why   string
	}{{nil, "does not exist"}, {found("c", "63Mi", corev1.PersistentVolumeBlock), "use a larger claim"}} {
		claims["c"] = wrong.claim
		if got, why := Describe(vmi, claims); got != nil || !strings.Contains(why, wrong.why) {
			t.Errorf("%v: %q, want %q", got, why, wrong.why)
		}
	}
	claims["c"] = found("c", "64Mi", corev1.PersistentVolumeBlock)
	var why string
	if vmi.Status.MigratedVolumes, why = Describe(vmi, claims); why != "" || !Described(vmi) {
		t.Fatalf("%q, %+v", why, vmi.Status.MigratedVolumes)
	}
	disks, err := Leaving(vmi)
	if want := []Disk{{"one", false, true}, {"two", false, false}}; err != nil || !reflect.DeepEqual(disks, want) {
		t.Errorf("the guest leaves with %v, %v", disks, err)
	}
	there := AtTarget(vmi)
	if InUse(&there.Status, "one") != "c" || InUse(&vmi.Status, "one") != "a" || CopySize(there, "two") != 64<<20 ||
		CopySize(vmi, "two") != 0 {
		t.Errorf("the target sees %+v", there.Status.VolumeStatus)
	}
	back := vmi.DeepCopy()
	back.Spec.Volumes = running().Spec.Volumes
	if _, err := Leaving(back); err == nil || !Pending(back) || Described(back) {
		t.Errorf("a guest whose volumes were reverted leaves: %v", err)
	}
	Land(&vmi.Status)
	if Pending(vmi) || InUse(&vmi.Status, "two") != "d" {
		t.Errorf("the guest is there: %+v", vmi.Status)
	}
	Land(&back.Status) // it was too late
	if want := []Move{{"one", "c", "a"}, {"two", "d", "b"}}; !reflect.DeepEqual(Moves(back), want) {
		t.Errorf("a guest that has come to claims which nobody wants any more goes back: %v", Moves(back))
	}
}

// What a VMI was made from stays known: its template with the volumes as they were.
func TestAsMade(t *testing.T) {
	vmi := running()
	for _, next := range []map[string]string{both, {"one": "e", "two": "f"}, nil} {
		spec := template(next)
		text, err := Remember(vmi, spec.Volumes)
		if err != nil {
			t.Fatal(err)
		}
		vmi.Annotations = map[string]string{MovedAnnotation: text}
		if got := claimsOf(AsMade(spec, vmi).Volumes); next != nil && got == "a b" {
			t.Errorf("%v counts before the VMI has taken it over", next)
		}
		vmi.Spec.Volumes = spec.Volumes
		if got := claimsOf(AsMade(spec, vmi).Volumes); got != "a b" {
			t.Errorf("after %v: made from %s", next, got)
		}
	}
	other := template(map[string]string{"one": "x"})
	if got := claimsOf(AsMade(other, vmi).Volumes); got != "x b" {
		t.Errorf("what the VMI has not taken over is another template: %s", got)
	}
}

func TestRecovery(t *testing.T) {
	vm := &v1.VirtualMachine{}
	vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{Spec: *template(both)}
	vm.Spec.UpdateVolumesStrategy = migration
	vmi := running()
	if UpdateState(vm, vmi) != nil || !Between(vm, vmi) {
		t.Error("the VMI has not taken the claims over yet")
	}
	stays := running()
	stays.Spec.Domain.Devices.Disks[0].Shareable = new(true)
	if Between(vm, stays) {
		t.Error("a disk that is not copied is one that is exchanged at the next start")
	}
	vmi.Spec.Volumes = template(both).Volumes
	vm.Status.VolumeUpdateState = UpdateState(vm, vmi)
	if vm.Status.VolumeUpdateState == nil || Unfinished(vm, vmi) || !Between(vm, vmi) {
		t.Fatal("the disks are being copied")
	}
	ended := vmi.DeepCopy()
	ended.Status.Phase = v1.Failed
	for name, last := range map[string]*v1.VirtualMachineInstance{"ended": ended, "gone": nil} {
		if !Unfinished(vm, last) || !Between(vm, last) {
			t.Errorf("%s: the VM may start with half a disk", name)
		}
		if got := RecoveryMessage(UpdateState(vm, last)); !strings.HasSuffix(got, "had: one to a, two to b") {
			t.Error(got)
		}
		reverted := vm.DeepCopy()
		reverted.Spec.Template.Spec = *template(nil)
		if Unfinished(reverted, last) || Between(reverted, last) {
			t.Errorf("%s: the VM has its old claims again and may not start", name)
		}
	}
	Land(&ended.Status)
	ended.Status.VolumeStatus[0].PersistentVolumeClaimInfo = &v1.PersistentVolumeClaimInfo{ClaimName: "c"}
	ended.Status.VolumeStatus[1].PersistentVolumeClaimInfo = &v1.PersistentVolumeClaimInfo{ClaimName: "d"}
	if Unfinished(vm, ended) {
		t.Error("the guest ended after it had come to the new claims")
	}
}

func TestFingerprint(t *testing.T) {
	if a, b := Fingerprint(template(nil)), Fingerprint(template(both)); a == b || a != Fingerprint(template(nil)) {
		t.Errorf("%s and %s", a, b)
	}
}

// A claim that is only read may be one that many nodes can read.
func TestReadOnlyClaimMoves(t *testing.T) {
	info := &v1.PersistentVolumeClaimInfo{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}}
	if OnBothNodes(info, false) || !OnBothNodes(info, true) || OnBothNodes(nil, true) {
		t.Error("ReadOnlyMany is for claims that are only read")
	}
}

package volumemigration

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/hotplug"
)

// plugging has volume one of a spec be hotplugged.
func plugging(spec *v1.VirtualMachineInstanceSpec) *v1.VirtualMachineInstanceSpec {
	spec.Volumes[0].PersistentVolumeClaim.Hotpluggable = true
	return spec
}

// pluggedIn is a VMI as running returns it, with volume one hotplugged and in the guest.
func pluggedIn() *v1.VirtualMachineInstance {
	vmi := running()
	plugging(&vmi.Spec)
	vmi.Status.VolumeStatus[0].HotplugVolume = &v1.HotplugVolumeStatus{AttachPodUID: "at-source"}
	vmi.Status.VolumeStatus[0].Phase = v1.VolumeReady
	return vmi
}

// taking returns a VMI that has taken over what a Decision says.
func taking(t *testing.T, vmi *v1.VirtualMachineInstance, d Decision) *v1.VirtualMachineInstance {
	t.Helper()
	next := vmi.DeepCopy()
	next.Spec.Volumes = d.Volumes
	if err := NoteCopies(vmi, next, !d.Reverts); err != nil {
		t.Fatal(err)
	}
	return next
}

// The claims of hotplugged volumes are exchanged as those of others where disks are copied. Where they are not, what
// names another claim is not Follow's but hotplug.Follow's.
func TestFollowPlugged(t *testing.T) {
	replacement := v1.UpdateVolumesStrategyReplacement
	copying := func() *v1.VirtualMachineInstance {
		vmi := pluggedIn()
		return taking(t, vmi, Follow(migration, plugging(template(both)), vmi))
	}
	device := func(device v1.DiskDevice) *v1.VirtualMachineInstance {
		vmi := pluggedIn()
		vmi.Spec.Domain.Devices.Disks[0].DiskDevice = device
		return vmi
	}
	early := pluggedIn()
	early.Status.VolumeStatus[0].Phase = v1.HotplugVolumeMounted
	for name, c := range map[string]struct {
		strategy *v1.UpdateVolumesStrategy
		vmi      *v1.VirtualMachineInstance
		change   map[string]string
		// takes are the VMI's claims afterwards, refuses a part of the reason for volume one; kept are the template's
		// claims of which hotplug.Follow hears.
		takes, refuses, kept string
	}{
		"both":        {migration, pluggedIn(), both, "c d", "", "a d"},
		"no strategy": {nil, pluggedIn(), both, "", "", "c d"},
		"replacement": {&replacement, pluggedIn(), both, "", "", "c d"},
		"the other one, which does not see it": {
			&replacement, copying(), nil, "a b", "", "c b",
		},
		"taken back":   {migration, copying(), nil, "a b", "", "c b"},
		"to a third":   {migration, copying(), map[string]string{"one": "e", "two": "d"}, "", "only be", "c d"},
		"by no policy": {nil, copying(), map[string]string{"one": "e", "two": "d"}, "", "only be", "c d"},
		"not there yet": {
			migration, early, both, "", "copied once the guest has it", "a d",
		},
		"a LUN": {migration, device(v1.DiskDevice{LUN: &v1.LunTarget{}}), both, "", "LUN", "a d"},
		"a disc": {
			migration, device(v1.DiskDevice{CDRom: &v1.CDRomTarget{}}), map[string]string{"one": "c"}, "", "", "c b",
		},
	} {
		t.Run(name, func(t *testing.T) {
			spec := plugging(template(c.change))
			got := Follow(c.strategy, spec, c.vmi)
			if claimsOf(got.Volumes) != c.takes {
				t.Errorf("takes %q, want %q", claimsOf(got.Volumes), c.takes)
			}
			why := got.Refused["volumes[one]"]
			if c.refuses == "" && len(got.Refused) > 0 || !strings.Contains(why, c.refuses) {
				t.Errorf("refused: %v", got.Refused)
			}
			KeepPlugged(c.strategy, spec, c.vmi)
			if claimsOf(spec.Volumes) != c.kept {
				t.Errorf("the template has %s, want %s", claimsOf(spec.Volumes), c.kept)
			}
		})
	}
}

// The way of a hotplugged volume to another claim.
func TestWayOfPlugged(t *testing.T) {
	vmi := pluggedIn()
	decision := Follow(migration, plugging(template(both)), vmi)
	claims := map[string]*corev1.PersistentVolumeClaim{
		"c": found("c", "1Mi", corev1.PersistentVolumeFilesystem),
		"d": found("d", "1Gi", corev1.PersistentVolumeFilesystem),
	}
	if why := decision.WaitsFor(vmi, claims); !strings.Contains(why, `volume "one": PersistentVolumeClaim c has`) {
		t.Errorf("it waits for %q", why)
	}
	vmi = taking(t, vmi, decision)
	if want := []Move{{"one", "a", "c"}, {"two", "b", "d"}}; !reflect.DeepEqual(Moves(vmi), want) {
		t.Fatalf("%v is under way", Moves(vmi))
	}
	if source := hotplug.AtSource(vmi); claimsOf(source.Spec.Volumes) != "a d" {
		t.Errorf("the source's pods are to have %s", claimsOf(source.Spec.Volumes))
	}
	claims["c"] = found("c", "64Mi", corev1.PersistentVolumeBlock)
	var why string
	if vmi.Status.MigratedVolumes, why = Describe(vmi, claims); why != "" || !Described(vmi) {
		t.Fatalf("%q, %+v", why, vmi.Status.MigratedVolumes)
	}
	disks, err := Leaving(vmi)
	if want := []Disk{{"one", true, true}, {"two", false, false}}; err != nil || !reflect.DeepEqual(disks, want) {
		t.Errorf("the guest leaves with %v, %v", disks, err)
	}
	there := AtTarget(vmi)
	if volumes, busy := hotplug.Moving(there); busy != "" || !reflect.DeepEqual(volumes, []string{"one"}) ||
		InUse(&there.Status, "one") != "c" || CopySize(there, "one") != 64<<20 {
		t.Errorf("the target sees %v, %q, %+v", volumes, busy, there.Status.VolumeStatus)
	}
	vm := &v1.VirtualMachine{}
	vm.Spec.UpdateVolumesStrategy = migration
	vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{Spec: *plugging(template(both))}
	ended := vmi.DeepCopy()
	ended.Status.Phase = v1.Failed
	if want := []Move{{"one", "a", "c"}, {"two", "b", "d"}}; !reflect.DeepEqual(Uncopied(vm, ended), want) ||
		!Unfinished(vm, ended) {
		t.Errorf("its guest has ended, and left %v uncopied", Uncopied(vm, ended))
	}
	removed := vmi.DeepCopy()
	removed.Spec.Volumes = removed.Spec.Volumes[1:]
	if _, err := Leaving(removed); err == nil || Described(removed) {
		t.Error("the guest leaves though the volume was removed")
	}
	Land(&vmi.Status)
	if Pending(vmi) || InUse(&vmi.Status, "one") != "c" || len(Uncopied(vm, vmi)) > 0 {
		t.Errorf("the guest is there: %+v", vmi.Status)
	}
	landed := vmi.DeepCopy()
	if err := NoteCopies(vmi, landed, false); err != nil || landed.Annotations[hotplug.CopiesAnnotation] != "" {
		t.Errorf("%v, and it is still copied: %v", err, landed.Annotations)
	}
}

// A migration with disks brings the hotplugged disks that the VM names, too, and names them as hotplugged ones.
func TestBringPlugged(t *testing.T) {
	vmi := pluggedIn()
	vmi.OwnerReferences = []metav1.OwnerReference{{
		Kind: v1.VirtualMachineGroupVersionKind.Kind, Controller: new(true),
	}}
	if got := Bring(vmi); got.Helps() || !strings.Contains(got.Refusal(), "the instance alone has it") {
		t.Errorf("%+v", got)
	}
	metav1.SetMetaDataAnnotation(&vmi.ObjectMeta, hotplug.DeclaredAnnotation, "one")
	if got := Bring(vmi); !got.Helps() || !reflect.DeepEqual(got.Volumes, []string{"one", "two"}) {
		t.Errorf("%+v", got)
	}
	vm := &v1.VirtualMachine{}
	vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{Spec: *plugging(template(nil))}
	vm.Spec.Template.Spec.Volumes[0].VolumeSource = v1.VolumeSource{
		DataVolume: &v1.DataVolumeSource{Name: "a", Hotpluggable: true},
	}
	ops := Exchange(vm, []Exchanged{{"one", "c"}})
	if v, ok := ops[2].Value.(*v1.Volume); !ok || !hotplug.Is(v) || v.PersistentVolumeClaim.ClaimName != "c" {
		t.Errorf("the VM's patch is %+v", ops)
	}
}

func TestPluggedFingerprint(t *testing.T) {
	is, other := template(nil), template(map[string]string{"one": "c"})
	volumes := []string{"one", "two"}
	if PluggedFingerprint(is, volumes) != PluggedFingerprint(template(nil), []string{"two", "one"}) ||
		PluggedFingerprint(is, volumes) == PluggedFingerprint(other, volumes) {
		t.Error("it does not tell claims apart")
	}
}

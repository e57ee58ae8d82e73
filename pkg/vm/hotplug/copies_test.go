package hotplug

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
)

// on is a hotplugged volume on a claim.
func on(name, claim string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
			Hotpluggable:                      true,
		},
	}}
}

// has is a VMI whose guest has volume data from claim "old"; its spec names claim.
func has(claim string) *v1.VirtualMachineInstance {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Spec.Volumes = []v1.Volume{on("data", claim)}
	vmi.Status.VolumeStatus = []v1.VolumeStatus{{
		Name: "data", Phase: v1.VolumeReady, HotplugVolume: &v1.HotplugVolumeStatus{},
		PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "old"},
	}}
	return vmi
}

func noting(vmi *v1.VirtualMachineInstance, text string) *v1.VirtualMachineInstance {
	vmi = vmi.DeepCopy()
	metav1.SetMetaDataAnnotation(&vmi.ObjectMeta, CopiesAnnotation, text)
	return vmi
}

// Another claim in the spec is one to which the disk is copied only where the annotation says exactly that: else the
// disk is unplugged.
func TestCopied(t *testing.T) {
	const noted = `{"data":{"from":"old","to":"new"}}`
	landed := noting(has("new"), noted)
	landed.Status.VolumeStatus[0].PersistentVolumeClaimInfo.ClaimName = "new"
	fixed := noting(has("new"), noted)
	fixed.Spec.Volumes[0].PersistentVolumeClaim.Hotpluggable = false
	unknown := noting(has("new"), noted)
	unknown.Status.VolumeStatus = nil
	for name, c := range map[string]struct {
		vmi    *v1.VirtualMachineInstance
		copied bool
		// here is the claim of the node on which the guest is, leaves whether the disk is to be unplugged.
		here   string
		leaves bool
	}{
		"on its way":        {noting(has("new"), noted), true, "old", false},
		"replaced":          {has("new"), false, "new", true},
		"of another copy":   {noting(has("third"), noted), false, "third", true},
		"of another volume": {noting(has("new"), `{"more":{"from":"old","to":"new"}}`), false, "new", true},
		"no JSON":           {noting(has("new"), "new"), false, "new", true},
		"reverted":          {noting(has("old"), noted), false, "old", false},
		"at the target":     {landed, false, "new", false},
		"not hotplugged":    {fixed, false, "new", true},
		"nothing known":     {unknown, false, "new", false},
		"to itself":         {noting(has("old"), `{"data":{"from":"old","to":"old"}}`), false, "old", false},
	} {
		t.Run(name, func(t *testing.T) {
			before := c.vmi.DeepCopy()
			if got := Copied(c.vmi, &c.vmi.Spec.Volumes[0]); got != c.copied {
				t.Errorf("copied: %t", got)
			}
			here := AtSource(c.vmi)
			if got := claims.Name(&here.Spec.Volumes[0]); got != c.here {
				t.Errorf("its node has claim %s, want %s", got, c.here)
			}
			if _, busy := Moving(c.vmi); (busy != "") != c.leaves {
				t.Errorf("busy: %q", busy)
			}
			if !reflect.DeepEqual(c.vmi, before) {
				t.Error("the VMI was written to")
			}
		})
	}
}

func TestNoteCopies(t *testing.T) {
	all := func(string) bool { return true }
	none := func(string) bool { return false }
	const noted = `{"data":{"from":"old","to":"new"}}`
	for name, c := range map[string]struct {
		vmi    *v1.VirtualMachineInstance
		next   []v1.Volume
		copied func(string) bool
		want   string
	}{
		"begins":            {has("old"), []v1.Volume{on("data", "new")}, all, noted},
		"is replaced":       {has("old"), []v1.Volume{on("data", "new")}, none, ""},
		"goes on":           {noting(has("new"), noted), []v1.Volume{on("data", "new")}, none, noted},
		"is reverted":       {noting(has("new"), noted), []v1.Volume{on("data", "old")}, all, ""},
		"is unplugged":      {noting(has("new"), noted), nil, all, ""},
		"nothing to copy":   {has("old"), []v1.Volume{on("more", "new")}, all, ""},
		"to a third":        {noting(has("new"), noted), []v1.Volume{on("data", "third")}, none, ""},
		"what is no volume": {noting(has("old"), "]"), []v1.Volume{on("data", "old")}, none, ""},
	} {
		if got, err := NoteCopies(c.vmi, c.next, c.copied); err != nil || got != c.want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, c.want)
		}
	}
}

func TestOn(t *testing.T) {
	filled := v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{
		DataVolume: &v1.DataVolumeSource{Name: "old", Hotpluggable: true},
	}}
	readOnly := on("data", "old")
	readOnly.PersistentVolumeClaim.ReadOnly = true
	for _, v := range []v1.Volume{filled, readOnly} {
		got := On(&v, "new")
		if claims.Name(got) != "new" || !Is(got) || got.DataVolume != nil || claims.Name(&v) != "old" ||
			claims.Of(got).ReadOnly != claims.Of(&v).ReadOnly {
			t.Errorf("%+v of %+v", got, v)
		}
	}
}

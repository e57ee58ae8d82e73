package volumemigration

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
)

// TestDeletesClaims: the VM is asked first, then its template, then the class; nothing but Delete deletes.
func TestDeletesClaims(t *testing.T) {
	for name, c := range map[string]struct {
		vm, template, class string
		want                bool
	}{
		"nobody says anything":     {},
		"the VM deletes":           {vm: ClaimsDelete, want: true},
		"the template deletes":     {template: ClaimsDelete, want: true},
		"the class deletes":        {class: ClaimsDelete, want: true},
		"the VM keeps":             {vm: ClaimsKeep, template: ClaimsDelete, class: ClaimsDelete},
		"the template keeps":       {template: ClaimsKeep, class: ClaimsDelete},
		"the VM has the last word": {vm: ClaimsDelete, template: ClaimsKeep, class: ClaimsKeep, want: true},
		"no value":                 {vm: "delete", class: ClaimsDelete},
	} {
		t.Run(name, func(t *testing.T) {
			says := func(value string) map[string]string {
				if value == "" {
					return nil
				}
				return map[string]string{CopiedClaimsAnnotation: value}
			}
			vm, class := &v1.VirtualMachine{}, &storagev1.StorageClass{}
			vm.Annotations, class.Annotations = says(c.vm), says(c.class)
			vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{}
			vm.Spec.Template.ObjectMeta.Annotations = says(c.template)
			if got := DeletesClaims(vm, class); got != c.want {
				t.Errorf("deletes %v", got)
			}
			if got := ClassDecides(vm); got != (c.vm == "" && c.template == "") {
				t.Errorf("the class decides: %v", got)
			}
		})
	}
	if DeletesClaims(&v1.VirtualMachine{}, nil) {
		t.Error("deletes without a template and a class")
	}
}

// TestLeaves: what a guest leaves is said once, with what it has left before, and goes when nothing is left.
func TestLeaves(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Spec.Volumes = []v1.Volume{*OnClaim("data", "new")}
	vmi.Status.VolumeStatus = []v1.VolumeStatus{
		{Name: "data", PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: "old"}},
	}
	old := &corev1.PersistentVolumeClaim{}
	old.Name, old.UID = "old", "2"
	from := map[string]*corev1.PersistentVolumeClaim{"old": old}
	before := Left{"data", "first", types.UID("1")}
	now := time.Unix(0, 0)
	if err := SetLeft(&vmi.Status, []Left{before}, now); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got := Leaves(vmi, from)
		if len(got) != 2 || got[0] != before || got[1] != (Left{"data", "old", "2"}) {
			t.Fatalf("leaves %+v", got)
		}
		if err := SetLeft(&vmi.Status, got, now); err != nil {
			t.Fatal(err)
		}
	}
	if got := Leaves(vmi, nil); len(got) != 2 {
		t.Errorf("a claim that is not known makes it %+v", got)
	}
	if err := SetLeft(&vmi.Status, nil, now); err != nil || len(vmi.Status.Conditions) != 0 {
		t.Errorf("conditions %+v, error %v", vmi.Status.Conditions, err)
	}
}

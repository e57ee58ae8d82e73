package volumemigration

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/claims"
)

var begun = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// says has a migration's status say what a plan says.
func says(t *testing.T, m *v1.VirtualMachineInstanceMigration, plan CopyPlan) {
	t.Helper()
	if err := SetMade(&m.Status, plan.Made, begun); err != nil {
		t.Fatal(err)
	}
	if got := MadeBy(&m.Status); !slices.Equal(got, plan.Made) {
		t.Fatalf("it says %+v", got)
	}
}

// create makes a claim, as the API server does.
func create(claim *corev1.PersistentVolumeClaim, uid string, at time.Time) *corev1.PersistentVolumeClaim {
	out := claim.DeepCopy()
	out.UID, out.CreationTimestamp = types.UID(uid), metav1.NewTime(at)
	return out
}

// A migration first says which claims it makes, then makes them, then says their UIDs, and is killed at any point.
func TestCopies(t *testing.T) {
	m := &v1.VirtualMachineInstanceMigration{
		ObjectMeta: metav1.ObjectMeta{UID: "mig", CreationTimestamp: metav1.NewTime(begun)},
	}
	vmi, volumes := ofAVM(), []string{"one", "two"}
	all := map[string]*corev1.PersistentVolumeClaim{
		"a":    found("a", "64Mi", corev1.PersistentVolumeBlock),
		"b":    found("b", "64Mi", corev1.PersistentVolumeFilesystem),
		"a-m1": found("a-m1", "1Gi", corev1.PersistentVolumeBlock),
	}
	all["a"].Spec.StorageClassName = new("fast")
	copies := func(want []Made, missing ...string) CopyPlan {
		t.Helper()
		plan, err := Copies(m, vmi, volumes, all)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, claim := range plan.Missing {
			names = append(names, claim.Name)
			if claim.Labels[CopiedByLabel] != "mig" {
				t.Errorf("claim %s has labels %v", claim.Name, claim.Labels)
			}
		}
		if !slices.Equal(plan.Made, want) || !slices.Equal(names, missing) {
			t.Fatalf("it makes %v and says %+v", names, plan.Made)
		}
		return plan
	}
	announced := []Made{{Volume: "one", Claim: "a-m2"}, {Volume: "two", Claim: "b-m1"}}
	plan := copies(announced, "a-m2", "b-m1")
	one, two := plan.Missing[0], plan.Missing[1]
	if *one.Spec.StorageClassName != "fast" || !claims.IsBlock(one.Spec.VolumeMode) || plan.To("two") != "b-m1" {
		t.Errorf("%+v", plan)
	}
	says(t, m, plan)
	copies(announced, "a-m2", "b-m1")

	// It makes the first, and is killed.
	all["a-m2"] = create(one, "1", begun)
	plan = copies([]Made{{"one", "a-m2", "1"}, {"two", "b-m1", ""}}, "b-m1")
	says(t, m, plan)
	// Meanwhile somebody makes a claim of the other's name.
	all["b-m1"] = found("b-m1", "64Mi", corev1.PersistentVolumeFilesystem)
	plan = copies([]Made{{"one", "a-m2", "1"}, {"two", "b-m2", ""}}, "b-m2")
	says(t, m, plan)
	two.Name = "b-m2"
	all["b-m2"] = create(two, "2", begun.Add(time.Minute))
	if err := NoteMade(&m.Status, all["b-m2"], begun); err != nil {
		t.Fatal(err)
	}
	done := []Made{{"one", "a-m2", "1"}, {"two", "b-m2", "2"}}
	copies(done)
	// The disk of a volume does not go with the guest any more: what was made for it is still known.
	volumes = []string{"one"}
	copies(done)
	volumes = []string{"two"}
	delete(all, "b")
	copies(done)
	delete(all, "b-m2")
	if _, err := Copies(m, vmi, volumes, all); err == nil || !strings.Contains(err.Error(), "Claim b does not exist") {
		t.Errorf("%v", err)
	}
}

// A claim is a migration's by the UID that the migration's status says. Before that it is by name, labels and age, none
// of which somebody who may change claims can give to one that he has not made.
func TestMadeIs(t *testing.T) {
	by := &v1.VirtualMachineInstanceMigration{
		ObjectMeta: metav1.ObjectMeta{UID: "mig", CreationTimestamp: metav1.NewTime(begun)},
	}
	claim := found("a-m1", "1Mi", corev1.PersistentVolumeFilesystem)
	claim.Labels = map[string]string{CopiedByLabel: "mig", CopiedVolumeLabel: "one"}
	claim = create(claim, "1", begun)
	noted, announced := Made{"one", "a-m1", "1"}, Made{"one", "a-m1", ""}
	for name, c := range map[string]struct {
		change         func(*corev1.PersistentVolumeClaim)
		is, unrecorded bool
	}{
		"it is":         {func(*corev1.PersistentVolumeClaim) {}, true, true},
		"another":       {func(c *corev1.PersistentVolumeClaim) { c.UID = "2" }, false, true},
		"another name":  {func(c *corev1.PersistentVolumeClaim) { c.Name = "mine" }, false, false},
		"no label":      {func(c *corev1.PersistentVolumeClaim) { c.Labels = nil }, true, false},
		"another label": {func(c *corev1.PersistentVolumeClaim) { c.Labels[CopiedByLabel] = "next" }, true, false},
		"another disk":  {func(c *corev1.PersistentVolumeClaim) { c.Labels[CopiedVolumeLabel] = "two" }, true, false},
		"older": {
			func(c *corev1.PersistentVolumeClaim) { c.CreationTimestamp = metav1.NewTime(begun.Add(-time.Second)) },
			true, false,
		},
	} {
		changed := claim.DeepCopy()
		c.change(changed)
		if noted.Is(changed) != c.is || announced.Unrecorded(by, changed) != c.unrecorded {
			t.Errorf("%s: %t, %t", name, noted.Is(changed), announced.Unrecorded(by, changed))
		}
		if announced.Is(changed) || noted.Unrecorded(by, changed) {
			t.Errorf("%s: it is what is not said", name)
		}
	}
	if noted.Is(nil) || announced.Unrecorded(by, nil) {
		t.Error("it is one that is not there")
	}
	if announced.Unrecorded(&v1.VirtualMachineInstanceMigration{}, &corev1.PersistentVolumeClaim{}) {
		t.Error("a migration that is not there has made one")
	}
	garbled := &v1.VirtualMachineInstanceMigrationStatus{
		Conditions: []v1.VirtualMachineInstanceMigrationCondition{{Type: MadeCondition, Message: "a-m1"}},
	}
	if made := MadeBy(garbled); made != nil {
		t.Errorf("%+v", made)
	}
}

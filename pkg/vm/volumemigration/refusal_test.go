package volumemigration

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

func condition(
	kind v1.VirtualMachineInstanceConditionType, status corev1.ConditionStatus, reason, message string,
) v1.VirtualMachineInstanceCondition {
	return v1.VirtualMachineInstanceCondition{Type: kind, Status: status, Reason: reason, Message: message}
}

// Why a guest must not move, whose volumes are changed and changed back.
func TestRefusals(t *testing.T) {
	waiting := condition(Condition, corev1.ConditionTrue, ReasonWaiting, "PersistentVolumeClaim c does not exist")
	can := condition(v1.VirtualMachineInstanceIsMigratable, corev1.ConditionTrue, "", "")
	cannot := condition(v1.VirtualMachineInstanceIsMigratable, corev1.ConditionFalse, "DisksNotLiveMigratable", "old")
	wants := map[string]*corev1.PersistentVolumeClaim{
		"c": found("c", "64Mi", corev1.PersistentVolumeBlock), "d": found("d", "64Mi", corev1.PersistentVolumeBlock),
	}
	for name, c := range map[string]struct {
		claims     map[string]string
		described  bool
		conditions []v1.VirtualMachineInstanceCondition
		// want are the reasons and the beginnings of the messages.
		want []string
	}{
		"on claims of one node": {want: []string{`DisksNotLiveMigratable volume "one": PersistentVolumeClaim a `}},
		"its node says so":      {conditions: []v1.VirtualMachineInstanceCondition{cannot}, want: []string{"Disks"}},
		"waits": {
			claims: both, conditions: []v1.VirtualMachineInstanceCondition{waiting, can},
			want: []string{"VolumesChangeWaiting PersistentVolumeClaim c does not exist"},
		},
		"waits, and cannot move": {
			claims: both, conditions: []v1.VirtualMachineInstanceCondition{waiting, cannot},
			want: []string{"VolumesChangeWaiting", "DisksNotLiveMigratable old"},
		},
		// virt-handler has not seen yet that the volumes were reverted.
		"reverted": {
			conditions: []v1.VirtualMachineInstanceCondition{waiting, can},
			want:       []string{`DisksNotLiveMigratable volume "one": PersistentVolumeClaim a cannot be used on two`},
		},
		"changed just now": {claims: both, conditions: []v1.VirtualMachineInstanceCondition{can}},
		"to be copied":     {both, true, []v1.VirtualMachineInstanceCondition{can}, nil},
		"waits for the pause after a failure": {
			both, true, []v1.VirtualMachineInstanceCondition{waiting, can}, nil,
		},
	} {
		vmi := running()
		vmi.Spec.Volumes, vmi.Status.Conditions = template(c.claims).Volumes, c.conditions
		if c.described {
			vmi.Status.MigratedVolumes, _ = Describe(vmi, wants)
		}
		got := Refusals(vmi)
		if len(got) != len(c.want) {
			t.Errorf("%s: %+v", name, got)
			continue
		}
		for i, want := range c.want {
			if text := got[i].Reason + " " + got[i].Message; !strings.HasPrefix(text, want) {
				t.Errorf("%s: %q, want %q", name, text, want)
			}
		}
		first := Refusal(vmi)
		if (first == "") != (len(c.want) == 0) ||
			first != "" && first != "Cannot migrate VMI, Reason: "+got[0].Reason+", Message: "+got[0].Message {
			t.Errorf("%s: refusal %q", name, first)
		}
		if _, err := Leaving(vmi); (err == nil) != (first == "" && Described(vmi)) {
			t.Errorf("%s: it leaves: %v", name, err)
		}
		if unsaid := Unsaid(vmi); unsaid != (name == "reverted") {
			t.Errorf("%s: unsaid is %t", name, unsaid)
		}
	}
	shared := running()
	for i := range shared.Status.VolumeStatus {
		info := shared.Status.VolumeStatus[i].PersistentVolumeClaimInfo
		info.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	}
	if got := Refusals(shared); got != nil {
		t.Errorf("on claims of all nodes: %+v", got)
	}
	unknown := running()
	unknown.Status.VolumeStatus = nil
	if got := Refusals(unknown); got != nil {
		t.Errorf("on claims that nobody has looked at: %+v", got)
	}
}

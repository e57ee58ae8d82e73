package expansion

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"
)

func storage(size string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
}

func TestOf(t *testing.T) {
	type conditions = []corev1.PersistentVolumeClaimCondition
	condition := func(kind corev1.PersistentVolumeClaimConditionType, message string) conditions {
		return conditions{{Type: kind, Status: corev1.ConditionTrue, Message: message}}
	}
	pending := map[corev1.ResourceName]corev1.ClaimResourceStatus{
		corev1.ResourceStorage: corev1.PersistentVolumeClaimNodeResizePending,
	}
	for name, tc := range map[string]struct {
		request string
		status  corev1.PersistentVolumeClaimStatus
		want    string
	}{
		"not bound":     {"2Gi", corev1.PersistentVolumeClaimStatus{}, ""},
		"has it":        {"1Gi", corev1.PersistentVolumeClaimStatus{Capacity: storage("1Gi")}, ""},
		"has more":      {"1Gi", corev1.PersistentVolumeClaimStatus{Capacity: storage("2Gi")}, ""},
		"as many bytes": {"1024Mi", corev1.PersistentVolumeClaimStatus{Capacity: storage("1Gi")}, ""},
		"begun": {
			"2Gi",
			corev1.PersistentVolumeClaimStatus{Capacity: storage("1Gi")},
			"claim data grows from 1Gi to 2Gi: the storage works on it",
		},
		"under way": {
			"2Gi",
			corev1.PersistentVolumeClaimStatus{
				Capacity: storage("1Gi"), Conditions: condition(corev1.PersistentVolumeClaimResizing, ""),
			},
			"claim data grows from 1Gi to 2Gi: the storage works on it",
		},
		"on the node": {
			"2Gi",
			corev1.PersistentVolumeClaimStatus{
				Capacity:   storage("1Gi"),
				Conditions: condition(corev1.PersistentVolumeClaimFileSystemResizePending, "x"),
			},
			"claim data grows from 1Gi to 2Gi: the node is to make its file system larger",
		},
		"on the node, by its status": {
			"2Gi",
			corev1.PersistentVolumeClaimStatus{Capacity: storage("1Gi"), AllocatedResourceStatuses: pending},
			"claim data grows from 1Gi to 2Gi: the node is to make its file system larger",
		},
		"on the node, an earlier one": {
			"4Gi",
			corev1.PersistentVolumeClaimStatus{
				Capacity: storage("1Gi"), AllocatedResources: storage("2Gi"), AllocatedResourceStatuses: pending,
			},
			"claim data grows from 1Gi to 4Gi: an earlier expansion to 2Gi comes first, for which the node is to " +
				"make its file system larger",
		},
		"refused": {
			"2Gi",
			corev1.PersistentVolumeClaimStatus{
				Capacity:   storage("1Gi"),
				Conditions: condition(corev1.PersistentVolumeClaimControllerResizeError, "the pool\nis full\n"),
			},
			"claim data grows from 1Gi to 2Gi: the storage cannot yet: the pool is full",
		},
	} {
		claim := &corev1.PersistentVolumeClaim{Status: tc.status}
		claim.Name = "data"
		claim.Spec.Resources.Requests = storage(tc.request)
		got := ""
		if of := Of(claim); of != nil {
			got = of.String()
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func TestKey(t *testing.T) {
	make := func(change func(*v1.VolumeStatus)) string {
		vmi := &v1.VirtualMachineInstance{}
		vmi.Status.VolumeStatus = []v1.VolumeStatus{
			{Name: "root", Target: "vda"},
			{Name: "data", Target: "vdb", PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{
				ClaimName: "data", Capacity: storage("1Gi"), Requests: storage("1Gi"),
			}},
		}
		change(&vmi.Status.VolumeStatus[1])
		return Key(vmi)
	}
	same := make(func(*v1.VolumeStatus) {})
	for name, change := range map[string]func(*v1.VolumeStatus){
		"capacity": func(s *v1.VolumeStatus) { s.PersistentVolumeClaimInfo.Capacity = storage("2Gi") },
		"request":  func(s *v1.VolumeStatus) { s.PersistentVolumeClaimInfo.Requests = storage("2Gi") },
		"claim":    func(s *v1.VolumeStatus) { s.PersistentVolumeClaimInfo.ClaimName = "other" },
		"target":   func(s *v1.VolumeStatus) { s.Target = "vdc" },
	} {
		if make(change) == same {
			t.Errorf("another %s makes no difference", name)
		}
	}
	if make(func(s *v1.VolumeStatus) { s.Size, s.Message = 1, "grows" }) != same {
		t.Error("what virt-handler writes itself makes a difference")
	}
}

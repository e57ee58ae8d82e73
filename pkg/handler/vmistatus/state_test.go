package vmistatus

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
)

// The state of TPM and EFI is on another claim once the target's launcher says so, whatever its access mode: while the
// guest runs there, when it ends there, and when nobody saw it there but its last word.
func TestStateMoves(t *testing.T) {
	const source, target = "persistent-state-for-demo-aaaaa", "persistent-state-for-demo-bbbbb"
	said := func(phase corev1.PodPhase, text string) *corev1.Pod {
		pod := &corev1.Pod{Status: corev1.PodStatus{Phase: phase}}
		if text != "" {
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{
				{Name: names.ContainerCompute, State: corev1.ContainerState{
					Terminated: &corev1.ContainerStateTerminated{Message: text},
				}},
			}
		}
		return pod
	}
	runs := &launcherpb.GuestState{Lifecycle: launcherpb.Lifecycle_LIFECYCLE_RUNNING}
	saved := &launcherpb.GuestState{Lifecycle: launcherpb.Lifecycle_LIFECYCLE_RUNNING, StateSaved: true}
	const off, offSaved = `{"lifecycle":"LIFECYCLE_SHUTOFF"}`, `{"lifecycle":"LIFECYCLE_SHUTOFF","stateSaved":true}`
	for name, test := range map[string]struct {
		target   string
		in       Input
		atTarget bool
		want     string
	}{
		"not yet":                     {target, Input{Guest: runs, Pod: said(corev1.PodRunning, "")}, true, source},
		"at once":                     {target, Input{Guest: saved, Pod: said(corev1.PodRunning, "")}, true, target},
		"before the guest":            {target, Input{Guest: saved, Pod: said(corev1.PodRunning, "")}, false, source},
		"both nodes use one":          {source, Input{Guest: saved, Pod: said(corev1.PodRunning, "")}, true, source},
		"ended there":                 {target, Input{Pod: said(corev1.PodSucceeded, offSaved)}, true, target},
		"ended there before":          {target, Input{Pod: said(corev1.PodSucceeded, off)}, true, source},
		"ended there, and nobody saw": {target, Input{Lost: "moved", StateMoved: true}, false, target},
		"lost on the way":             {target, Input{Lost: "moved"}, false, source},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := &v1.VirtualMachineInstance{}
			vmi.Spec.Domain.Devices.TPM = &v1.TPMDevice{Persistent: new(true)}
			vmi.Status.Phase, vmi.Status.NodeName = v1.Running, "node1"
			vmi.Status.VolumeStatus = []v1.VolumeStatus{
				{Name: source, PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{
					ClaimName: source, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				}},
			}
			vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{
				SourceNode: "node1", TargetNode: "node2", TargetNodeAddress: "10.0.0.2",
				SourcePersistentStatePVCName: source, TargetPersistentStatePVCName: test.target,
			}
			test.in.VMI = vmi
			got := Next(test.in)
			if test.atTarget {
				if test.in.Guest == nil { // it was taken over and has ended since
					vmi.Status.MigrationState.Completed, vmi.Status.NodeName = true, "node2"
					got = Next(test.in)
				} else {
					got = AtTarget(test.in, Target{Node: "node2"})
				}
			}
			info := got.VolumeStatus[0].PersistentVolumeClaimInfo
			if len(got.VolumeStatus) != 1 || got.VolumeStatus[0].Name != test.want || info.ClaimName != test.want ||
				len(info.AccessModes) != 1 {
				t.Errorf("volumes in the status %+v, want %s", got.VolumeStatus, test.want)
			}
			if vmi.Status.VolumeStatus[0].Name != source {
				t.Error("the status that was read has changed")
			}
		})
	}
}

// All that keeps a guest on its node is said at once, and the first is the reason.
func TestAllObstacles(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Spec.Domain.CPU = &v1.CPU{Model: v1.CPUModeHostPassthrough}
	vmi.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "node1"}
	vmi.Spec.Volumes = []v1.Volume{
		{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
			PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
		}}},
	}
	for emulated, reason := range map[bool]string{
		false: v1.VirtualMachineInstanceReasonCPUModeNotMigratable,
		true:  v1.VirtualMachineInstanceReasonNotMigratable,
	} {
		c := &conditionList{}
		migratable(vmi, nil, nil, emulated, c)
		for _, condition := range c.list {
			want, parts := v1.VirtualMachineInstanceReasonDisksNotMigratable, 3
			if condition.Type == v1.VirtualMachineInstanceIsStorageLiveMigratable {
				want, parts = reason, 2
			}
			if emulated {
				parts--
			}
			if condition.Reason != want || len(strings.Split(condition.Message, "; ")) < parts ||
				strings.Contains(condition.Message, "cpu.model") == emulated {
				t.Errorf("%s, emulated %t: %s: %s", condition.Type, emulated, condition.Reason, condition.Message)
			}
		}
	}
}

// A VMI is tied to its node when it may be nowhere else; one that was tied to another since can move there.
func TestTied(t *testing.T) {
	const hostname = corev1.LabelHostname
	only := func(key, node string) *corev1.Affinity {
		requirements := []corev1.NodeSelectorRequirement{
			{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
		}
		return &corev1.Affinity{
			NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: requirements}},
			}},
		}
	}
	free := &corev1.PodSpec{}
	for name, tc := range map[string]struct {
		selector map[string]string
		affinity *corev1.Affinity
		pod      *corev1.PodSpec
		want     string
	}{
		"free":               {nil, nil, free, ""},
		"to its node":        {map[string]string{hostname: "node1"}, nil, free, "spec.nodeSelector"},
		"to another":         {map[string]string{hostname: "node2"}, nil, free, ""},
		"to another, no pod": {map[string]string{hostname: "node2"}, nil, nil, "spec.nodeSelector"},
		"by a label that differs": {
			map[string]string{hostname: "host1"},
			nil,
			&corev1.PodSpec{NodeSelector: map[string]string{hostname: "host1"}}, "spec.nodeSelector",
		},
		"from one to another": {
			map[string]string{hostname: "host2"},
			nil,
			&corev1.PodSpec{NodeSelector: map[string]string{hostname: "host1"}}, "",
		},
		"by affinity":             {nil, only(hostname, "node1"), free, "spec.affinity.nodeAffinity"},
		"by affinity, to another": {nil, only(hostname, "node2"), free, ""},
		"by affinity, as its pod": {
			nil, only(hostname, "host1"), &corev1.PodSpec{Affinity: only(hostname, "host1")},
			"spec.affinity.nodeAffinity",
		},
		"by affinity, not its pod": {
			nil, only(hostname, "host2"), &corev1.PodSpec{Affinity: only(hostname, "host1")}, "",
		},
		"by affinity to other keys": {nil, only("zone", "node1"), free, ""},
	} {
		vmi := &v1.VirtualMachineInstance{}
		vmi.Status.NodeName = "node1"
		vmi.Spec.NodeSelector, vmi.Spec.Affinity = tc.selector, tc.affinity
		var pod *corev1.Pod
		if tc.pod != nil {
			pod = &corev1.Pod{Spec: *tc.pod}
		}
		got := ""
		if found := placementObstacles(vmi, pod); len(found) > 0 {
			got, _, _ = strings.Cut(found[0].String(), " ")
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

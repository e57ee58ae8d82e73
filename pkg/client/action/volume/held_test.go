package volume

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/wait"
)

// TestPluggedOrHeld: the wait ends when the claim is another guest's, which it names, and only then.
func TestPluggedOrHeld(t *testing.T) {
	t.Parallel()
	const inUse = `volume "d": PersistentVolumeClaim data is in use by another virtual machine`
	others := map[string]string{
		vmisPath: `{items: [
			{metadata: {name: db}, spec: {volumes: [{name: d, persistentVolumeClaim: {claimName: data}}]}},
			{metadata: {name: web, ownerReferences: [{kind: VirtualMachine, name: web, controller: true}]},
			  spec: {volumes: [{name: a, persistentVolumeClaim: {claimName: data}}]}},
			{metadata: {name: probe}, spec: {volumes: [{name: a, dataVolume: {name: data}}]}},
			{metadata: {name: old}, spec: {volumes: [{name: a, dataVolume: {name: data}}]}, status: {phase: Failed}},
			{metadata: {name: else}, spec: {volumes: [{name: a, dataVolume: {name: other}}]}}]}`,
	}
	for name, tc := range map[string]struct {
		status    v1.VolumeStatus
		instances map[string]string
		forbidden string
		met       bool
		holders   []string
	}{
		"held": {
			v1.VolumeStatus{Phase: v1.HotplugVolumeMounted, Reason: "VolumeAttachFailed", Message: inUse},
			others, "",
			false,
			[]string{"web", "vmi/probe"},
		},
		"held by what may not be read": {
			v1.VolumeStatus{Phase: v1.HotplugVolumeMounted, Reason: "VolumeAttachFailed", Message: inUse},
			others,
			vmisPath, false, nil,
		},
		"held by nobody who is known": {
			v1.VolumeStatus{Phase: v1.HotplugVolumeMounted, Reason: "VolumeAttachFailed", Message: inUse},
			map[string]string{vmisPath: `{items: []}`},
			"", false, nil,
		},
		"failed for another reason": {
			v1.VolumeStatus{Phase: v1.HotplugVolumeMounted, Reason: "VolumeAttachFailed", Message: "no room"},
			others,
			"", false, nil,
		},
		"on its way": {v1.VolumeStatus{Phase: v1.HotplugVolumeMounted, Message: inUse}, others, "", false, nil},
		"ready":      {v1.VolumeStatus{Phase: v1.VolumeReady}, others, "", true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "db"}}
			vmi.Spec.Volumes = []v1.Volume{{Name: "d", VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
					PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"},
				},
			}}}
			tc.status.Name = "d"
			vmi.Status.VolumeStatus = []v1.VolumeStatus{tc.status}
			api := shelf{pages: tc.instances, forbidden: tc.forbidden}
			met, err := PluggedOrHeld(t.Context(), api, "d").Met(wait.State{VMI: vmi})
			var held *HeldError
			if errors.As(err, &held) != (tc.holders != nil) || held == nil && err != nil || met != tc.met {
				t.Fatalf("%t, %v", met, err)
			}
			if held == nil {
				return
			}
			if diff := cmp.Diff(tc.holders, held.Holders); diff != "" {
				t.Error(diff)
			}
			if want := "volume d is not attached: PersistentVolumeClaim data is in use by another virtual machine; " +
				"claim data is in use by web, vmi/probe. It is attached once the claim is free, unless removevolume " +
				"takes the request back"; err.Error() != want {
				t.Errorf("%s, want %s", err, want)
			}
		})
	}
}

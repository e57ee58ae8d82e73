package handler

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Only what virt-controller mounts as devices of an export is given, and only once its container runs.
func TestExportDevices(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{VolumeDevices: []corev1.VolumeDevice{
		{DevicePath: "/dev/export-volumes/0"}, {DevicePath: "/dev/sda"}, {DevicePath: "/dev/export-volumes/1"},
	}}}}}
	if got := exportDevices(pod); !slices.Equal(got, []string{"/dev/export-volumes/0", "/dev/export-volumes/1"}) {
		t.Errorf("%q", got)
	}
	if _, running := startsOf(pod); running {
		t.Error("it has no container yet")
	}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		RestartCount: 3, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}
	if restarts, running := startsOf(pod); !running || restarts != 3 {
		t.Errorf("running %t, restarts %d", running, restarts)
	}
	pod.Spec.Containers[0].VolumeDevices = nil
	if _, running := startsOf(pod); running {
		t.Error("it has no devices")
	}
	for err, again := range map[error]bool{
		fmt.Errorf("x: %w", fs.ErrNotExist): true, errors.Join(errSilent, errors.New("refused")): true,
		errors.New("not the pod's process"): false,
	} {
		if got := nonesuch(err) == nil; got != again {
			t.Errorf("%v is tried again: %t", err, got)
		}
	}
}

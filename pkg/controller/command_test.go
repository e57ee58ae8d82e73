package controller

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// A lost node's VMs start elsewhere unless somebody says otherwise.
func TestFenceAfterFlag(t *testing.T) {
	if got := NewCommand().Flags().Lookup("fence-after").DefValue; got != "10m0s" {
		t.Errorf("it is %s", got)
	}
	o := Options{
		LauncherImage: "x", ServerImage: "y", ImagePullPolicy: string(corev1.PullIfNotPresent),
		NodeTimeout: time.Minute,
	}
	for after, good := range map[time.Duration]bool{
		0:                 true,
		minFenceAfter - 1: false,
		minFenceAfter:     true,
		defaultFenceAfter: true,
	} {
		o.FenceAfter = after
		if err := o.validate(); (err == nil) != good || err != nil && !strings.Contains(err.Error(), "--fence-after") {
			t.Errorf("%s: %v", after, err)
		}
	}
}

// Neither image has a default: pods of another build than virt-controller's would not understand it.
func TestImagesMustBeNamed(t *testing.T) {
	for flag, o := range map[string]Options{
		"--launcher-image": {ServerImage: "y"}, "--server-image": {LauncherImage: "x"},
	} {
		o.ImagePullPolicy, o.NodeTimeout = string(corev1.PullIfNotPresent), time.Minute
		if err := o.validate(); err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("without %s: %v", flag, err)
		}
	}
}

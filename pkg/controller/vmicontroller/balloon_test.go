package vmicontroller

import (
	"slices"
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/service/config"
)

// TestBalloonArguments: what the KubeVirt resource says of memory balloons reaches the launcher.
func TestBalloonArguments(t *testing.T) {
	kv := &v1.KubeVirt{}
	read := func() []string {
		installation, err := config.FromKubeVirt(kv)
		if err != nil {
			t.Fatal(err)
		}
		return launcherArgs(&v1.VirtualMachineInstance{}, installation)
	}
	plain := read()
	kv.Spec.Configuration.MemBalloonStatsPeriod = new(uint32(0))
	kv.Spec.Configuration.VirtualMachineOptions = &v1.VirtualMachineOptions{
		DisableFreePageReporting: &v1.DisableFreePageReporting{},
	}
	if got := read(); !slices.Equal(got, append(plain, "--balloon-period=0", "--keep-free-pages")) {
		t.Errorf("%q, without: %q", got, plain)
	}
	kv.Spec.Configuration.MemBalloonStatsPeriod = new(uint32(10))
	kv.Spec.Configuration.VirtualMachineOptions = nil
	if got := read(); !slices.Equal(got, plain) {
		t.Errorf("the default: %q, want %q", got, plain)
	}
}

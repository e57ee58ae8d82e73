package vmistatus

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/migrations"
)

// TestObstaclesAreRead has what virtctl why reads in the condition: each obstacle is one of its kind.
func TestObstaclesAreRead(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{}
	vmi.Spec.Volumes = []v1.Volume{
		{Name: "host", VolumeSource: v1.VolumeSource{HostDisk: &v1.HostDisk{Path: "/d.img"}}},
		{Name: "data", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "d"}}},
	}
	vmi.Spec.Networks = []v1.Network{*v1.DefaultPodNetwork()}
	vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{*v1.DefaultBridgeNetworkInterface()}
	vmi.Spec.Domain.Devices.GPUs = []v1.GPU{{Name: "g"}}
	vmi.Spec.Domain.CPU = &v1.CPU{Model: v1.CPUModeHostPassthrough, Features: []v1.CPUFeature{{Name: "invtsc"}}}
	vmi.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "one"}
	list := &conditionList{}
	migratable(vmi, nil, nil, false, list)
	c := conditions.Find(list.list, v1.VirtualMachineInstanceIsMigratable)
	var got []string
	parsed := migrations.ParseObstacles(c.Message)
	for _, o := range parsed {
		got = append(got, o.Object)
	}
	if want := []string{
		"host", "data", "default", "domain.cpu.model", "invtsc", "domain.devices.gpus", "nodeSelector",
	}; !slices.Equal(got, want) || migrations.EncodeObstacles(parsed) != c.Message {
		t.Errorf("%q of %q", got, c.Message)
	}
}

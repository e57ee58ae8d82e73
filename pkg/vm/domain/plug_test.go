package domain

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/network"
)

func TestPluggedInterface(t *testing.T) {
	plan := network.Plan{
		Interfaces: []network.Interface{{Name: "red", Tap: "tapred", MAC: "02:00:00:00:00:01", MTU: 1400, Queues: 2}},
	}
	for name, tc := range map[string]struct {
		change func(*v1.VirtualMachineInstance, *v1.Interface)
		want   string
	}{
		"plain": {func(*v1.VirtualMachineInstance, *v1.Interface) {}, `<interface type="ethernet">
  <mac address="02:00:00:00:00:01"></mac>
  <target dev="tapred" managed="no"></target>
  <model type="virtio"></model>
  <driver queues="2"></driver>
  <mtu size="1400"></mtu>
  <rom enabled="no"></rom>
  <alias name="ua-red"></alias>
</interface>`},
		"all": {func(vmi *v1.VirtualMachineInstance, nic *v1.Interface) {
			nic.State, nic.PciAddress, nic.ACPIIndex = v1.InterfaceStateLinkDown, "0000:05:00.0", 7
			vmi.Spec.Domain.Devices.UseVirtioTransitional = new(true)
		}, `<interface type="ethernet">
  <mac address="02:00:00:00:00:01"></mac>
  <target dev="tapred" managed="no"></target>
  <model type="virtio-transitional"></model>
  <driver queues="2"></driver>
  <link state="down"></link>
  <mtu size="1400"></mtu>
  <rom enabled="no"></rom>
  <acpi index="7"></acpi>
  <alias name="ua-red"></alias>
  <address type="pci" domain="0x0000" bus="0x05" slot="0x00" function="0x0"></address>
</interface>`},
	} {
		vmi, _ := baseline()
		nic := v1.Interface{Name: "red"}
		tc.change(vmi, &nic)
		vmi.Spec.Domain.Devices.Interfaces = append(vmi.Spec.Domain.Devices.Interfaces, nic)
		x, err := PluggedInterface(vmi, plan, "red")
		if err != nil {
			t.Fatal(err)
		}
		if text, err := x.Marshal(); err != nil || text != tc.want {
			t.Errorf("%s: %s, %v", name, text, err)
		}
		if _, err := PluggedInterface(vmi, plan, "blue"); err == nil {
			t.Error("an interface that is not there")
		}
	}
}

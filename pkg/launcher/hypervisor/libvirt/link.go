//go:build cgo && libvirt_dlopen

package libvirt

import (
	"context"
	"fmt"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"
)

// SetLink implements hypervisor.Connection.
func (c *connection) SetLink(_ context.Context, alias string, up bool) error {
	return c.with(func(d *libvirt.Domain) error {
		text, err := d.GetXMLDesc(0)
		if err != nil {
			return err
		}
		var now libvirtxml.Domain
		if err := now.Unmarshal(text); err != nil {
			return fmt.Errorf("read the domain's XML: %w", err)
		}
		if now.Devices == nil {
			return fmt.Errorf("the domain has no interface %s", alias)
		}
		for _, nic := range now.Devices.Interfaces {
			if nic.Alias == nil || nic.Alias.Name != alias {
				continue
			}
			nic.Link = &libvirtxml.DomainInterfaceLink{State: "down"}
			if up {
				nic.Link.State = "up"
			}
			changed, err := nic.Marshal()
			if err != nil {
				return fmt.Errorf("write interface %s: %w", alias, err)
			}
			return d.UpdateDeviceFlags(changed, libvirt.DOMAIN_DEVICE_MODIFY_LIVE)
		}
		return fmt.Errorf("the domain has no interface %s", alias)
	})
}

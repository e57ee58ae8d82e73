// Package pci reads and writes addresses on a guest's PCI bus.
package pci

import (
	"fmt"
	"regexp"
	"strconv"
)

// addressPattern is a PCI address as users write it, DOMAIN:BUS:SLOT.FUNCTION in hexadecimal.
var addressPattern = regexp.MustCompile(`^([[:xdigit:]]{4}):([[:xdigit:]]{2}):([01][[:xdigit:]])\.([0-7])$`)

// Address is a device's address on the guest's PCI bus.
type Address struct {
	Domain, Bus, Slot, Function uint
}

// Parse reads an address such as 0000:03:00.0.
func Parse(text string) (Address, error) {
	match := addressPattern.FindStringSubmatch(text)
	if match == nil {
		return Address{},
			fmt.Errorf("%q is not a PCI address such as 0000:03:00.0 (domain, bus, slot and function)", text)
	}
	var parts [4]uint
	for i, digits := range match[1:] {
		n, err := strconv.ParseUint(digits, 16, 16)
		if err != nil {
			return Address{}, fmt.Errorf("%q is not a PCI address: %w", text, err)
		}
		parts[i] = uint(n)
	}
	return Address{parts[0], parts[1], parts[2], parts[3]}, nil
}

func (a Address) String() string {
	return fmt.Sprintf("%04x:%02x:%02x.%x", a.Domain, a.Bus, a.Slot, a.Function)
}

package surface

import "regexp"

// DefaultMachineType is the machine type of a guest for which neither its VMI nor the installation names one.
const DefaultMachineType = "q35"

var q35 = regexp.MustCompile(`^(` + DefaultMachineType + `|pc-` + DefaultMachineType + `-[A-Za-z0-9.-]+)$`)

// IsQ35 reports whether a machine type is q35 or a version of it, such as pc-q35-9.2. No others are supported.
func IsQ35(machine string) bool { return q35.MatchString(machine) }

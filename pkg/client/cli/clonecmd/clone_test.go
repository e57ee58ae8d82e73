package clonecmd

import "testing"

// TestReached has what is said at the end of --wait.
func TestReached(t *testing.T) {
	o := &Options{}
	o.Source = "demo"
	if got, want := o.reached("copy"), "virtualmachine.kubevirt.io/copy is stopped: it is a copy of VM demo"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	o.FromSnapshot = true
	if got, want := o.reached("copy"), "virtualmachine.kubevirt.io/copy is stopped: it is a copy of snapshot demo"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

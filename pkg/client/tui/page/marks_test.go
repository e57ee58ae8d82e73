package page

import "testing"

// TestLeftOut has what a question says of marked machines that it does not concern.
func TestLeftOut(t *testing.T) {
	const stopped, paused = "it is not running", "it is paused; p lets it go on"
	for want, whys := range map[string][]string{
		"": nil,
		" 1 marked machine is left out: it is not running.":                {stopped},
		" 1 marked machine is left out: it is paused.":                     {paused},
		" 3 marked machines are left out: they are not running.":           {stopped, stopped, stopped},
		" 3 marked machines are left out: 2 are not running, 1 is paused.": {stopped, paused, stopped},
		" 2 marked machines are left out: they have no VirtualMachine.": {
			"it has no VirtualMachine", "it has no VirtualMachine",
		},
		" 2 marked machines are left out: you may not stop VMs in a.": {
			"you may not stop VMs in a", "you may not stop VMs in a",
		},
		" 3 marked machines are left out: 2: you may not stop VMs in a, 1 is paused.": {
			"you may not stop VMs in a", "you may not stop VMs in a", paused,
		},
	} {
		if got := leftOut("machine", whys); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestSentence ends a clause that has no end.
func TestSentence(t *testing.T) {
	for clause, want := range map[string]string{
		"give one": "Give one.", "is it running?": "Is it running?", "it is off.": "It is off.",
	} {
		if got := sentence(clause); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

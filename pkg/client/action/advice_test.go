package action

import "testing"

func TestAdvice(t *testing.T) {
	for text, want := range map[string]string{
		"virtctl stop web -n shop":                "kubectl virt stop web -n shop",
		"install it, then: virtctl restart web":   "install it, then: kubectl virt restart web",
		"add a node; `virtctl doctor` says which": "add a node; `kubectl virt doctor` says which",
		"spec.template of the VM":                 "spec.template of the VM",
		"ln -s \"$(command -v virtctl)\" /bin/x":  "ln -s \"$(command -v virtctl)\" /bin/x",
	} {
		if got := Advice("kubectl virt", text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

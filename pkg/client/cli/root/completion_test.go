package root

import (
	"strings"
	"testing"
)

// TestWhyCompletesOperations has the names of what is there after the kind.
func TestWhyCompletesOperations(t *testing.T) {
	kubeconfig := server(t, steadyServer(t))
	for word, want := range map[string]string{
		"snapshot/": "snapshot/snap\n", "snapshot/s": "snapshot/snap\n", "vmsnapshots/": "vmsnapshots/snap\n",
		"restore/": "restore/back\n", "clone/": "clone/copy\n", "clone/x": ":4\n",
	} {
		out, _ := runHostile(t, kubeconfig, []string{"__complete", "why", word})
		if !strings.HasPrefix(out, want) {
			t.Errorf("why %s: %q, want %q", word, out, want)
		}
	}
}

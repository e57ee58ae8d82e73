// Package cli is virtctl's frame: what every command is made of. A Factory gives a command its streams,
// kubeconfig and API client, each made on first use; IOStreams knows the terminal; errors become an exit code
// and one line for the user in one place; Output prints objects as kubectl does.
//
// A command lives in a package of its own below this one (pkg/client/cli/<verb>): an Options struct, a
// NewCmdX(f) that only parses, and a Run that tests call directly. What a command does is in
// pkg/client/action, which knows no terminal. pkg/client/cli/root puts the tree together and is what main calls.
package cli

import (
	"path/filepath"
	"strings"
)

// DisplayName returns how the user calls this program: "kubectl virt" when argv0 is the kubectl plugin
// kubectl-virt, else "virtctl".
func DisplayName(argv0 string) string {
	base := strings.TrimSuffix(filepath.Base(argv0), ".exe")
	if plugin, ok := strings.CutPrefix(base, "kubectl-"); ok && plugin != "" {
		return "kubectl " + plugin
	}
	return "virtctl"
}

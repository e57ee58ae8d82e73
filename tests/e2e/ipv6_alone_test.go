//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// networkTests are those whose guests ask for addresses of the families that there are.
const networkTests = "Network|Famil|Forward|Address|Spoof|Stream|UsedUp|MAC|Interface|Probes"

// The tests of networks pass in a cluster of IPv6 alone, which is one of its own.
func TestIPv6Alone(t *testing.T) {
	if !*long {
		t.Skip("only with -long")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.v", "-test.run", networkTests, "-test.timeout", "60m")
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "VIRTKIT_E2E_")
	}), "VIRTKIT_E2E_FAMILY=ipv6")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	out, err := cmd.CombinedOutput()
	ran := regexp.MustCompile(`(?m)^--- (PASS|FAIL|SKIP): .*`).FindAllString(string(out), -1)
	t.Logf("in a cluster of IPv6 alone:\n%s", strings.Join(ran, "\n"))
	if err != nil || !strings.Contains(strings.Join(ran, "\n"), "PASS") {
		t.Errorf("%v\n%s", err, out)
	}
}

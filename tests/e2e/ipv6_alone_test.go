//go:build e2e

package e2e

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/virtkit/virtkit/tests/instance"
)

// networkTests are those whose guests ask for addresses of the families that there are. TestBootToLogin is that of DNS.
const networkTests = "Network|Famil|Forward|Address|Spoof|Stream|UsedUp|MAC|Interface|Probes|TestMetrics$|BootToLogin"

// The tests of networks pass in a cluster of IPv6 alone, which this test makes for them and takes down.
func TestIPv6Alone(t *testing.T) {
	if !*long {
		t.Skip("only with -long")
	}
	_, six := theCluster.families(t)
	if lacksIPv6(six, os.Getenv("VIRTKIT_E2E_CLUSTER"), os.Getenv("VIRTKIT_E2E_FAMILY")) {
		t.Skip("this machine cannot have IPv6")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	starting, cancel := context.WithTimeout(t.Context(), startTime)
	defer cancel()
	i, err := instance.Start(starting, "e2e", upFlags(os.Getenv("VIRTKIT_E2E_STORAGE"), "ipv6")...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := takeDown(i); err != nil {
			t.Errorf("take the cluster of IPv6 alone down: %v", err)
		}
	})
	deadline, bounded := t.Deadline()
	most := innerTime(time.Now(), deadline, bounded)
	if most == 0 {
		t.Fatal("the run has too little time left for the tests of networks; give it more with -timeout")
	}
	ctx, cancel := context.WithTimeout(t.Context(), most+time.Minute) // the tests end by themselves before
	defer cancel()
	cmd := exec.CommandContext(ctx, self, "-test.v", "-test.run", networkTests, "-test.timeout", most.String())
	cmd.Env = innerEnv(os.Environ(), i.Name, i.Kubeconfig)
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	ran := regexp.MustCompile(`(?m)^--- (PASS|FAIL|SKIP): .*`).FindAllString(string(out), -1)
	t.Logf("in a cluster of IPv6 alone:\n%s", strings.Join(ran, "\n"))
	if err != nil || !strings.Contains(strings.Join(ran, "\n"), "PASS") {
		t.Errorf("%v\n%s", err, out)
	}
}

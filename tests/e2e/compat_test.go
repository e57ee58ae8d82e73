//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/virtkit/virtkit/tests/instance"
)

// KubeVirt's own Go client against this server. Its test is a module of its own (tests/compat); it is run here because
// it needs the instance.
func TestKubeVirtClient(t *testing.T) {
	t.Parallel()
	c := theCluster
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: c.Kubeconfig}
	raw, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).RawConfig()
	if err != nil {
		t.Fatal(err)
	}
	raw.CurrentContext = c.Name
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(raw, kubeconfig); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-tags", "e2e", "-count=1", "./...")
	cmd.Dir = filepath.Join(c.Root, "tests", "compat")
	cmd.Env = append(os.Environ(), "VIRTKIT_COMPAT_KUBECONFIG="+kubeconfig, "VIRTKIT_COMPAT_IMAGE="+instance.TinyDisk())
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatalf("go test ./... in tests/compat: %v", err)
	}
}

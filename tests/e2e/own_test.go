//go:build e2e

package e2e

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/virtkit/virtkit/tests/instance"
)

// ownClusters are the tests that have clusters of their own, leave the one of all others alone, and mostly wait.
// dev/test.sh runs them in a process of their own, beside the others.
var ownClusters = []string{"TestFenceAfter", "TestNodeLoss"}

const (
	// ownVariable is the environment variable that says which of the two runs this is; in one without it all tests run.
	ownVariable = "VIRTKIT_E2E_OWN_CLUSTERS"
	// ownOnly is the run of ownClusters, which needs no other cluster, ownBeside that of all others.
	ownOnly, ownBeside = "only", "beside"
)

// selectOwn selects the tests of this run by ownVariable, and reports whether those with clusters of their own are all.
func selectOwn() (only bool, err error) {
	switch value := os.Getenv(ownVariable); value {
	case "", ownBeside:
		return false, nil
	case ownOnly:
		return true, flag.Set("test.run", "^("+strings.Join(ownClusters, "|")+")$") // the command line may have another
	default:
		return false, fmt.Errorf("%s is %q: it may be %q or %q", ownVariable, value, ownOnly, ownBeside)
	}
}

// ownCluster makes a cluster for a test of ownClusters alone, with virtkit on it. flags are virt-local up's.
func ownCluster(t *testing.T, prefix string, flags ...string) *cluster {
	t.Helper()
	if !slices.Contains(ownClusters, t.Name()) {
		t.Fatalf("%s is not in ownClusters: the run of those would leave it out", t.Name())
	}
	if os.Getenv(ownVariable) == ownBeside {
		t.Skip("the run beside this one has it")
	}
	i, err := instance.Start(t.Context(), prefix, flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := i.Down(); err != nil {
			t.Error(err)
		}
	})
	if err := i.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &cluster{i}
}

//go:build e2e

package e2e

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/virtkit/virtkit/tests/instance"
	"github.com/virtkit/virtkit/tests/rbac"
)

// checkRights compares what the components may do with what they did in this run, on an instance that was made for it.
// With -short a right may be there without a use: tests were left out.
func checkRights(i *instance.Instance) error {
	if os.Getenv("VIRTKIT_E2E_CLUSTER") != "" || flag.Lookup("test.run").Value.String() != "" ||
		flag.Lookup("test.skip").Value.String() != "" {
		return nil
	}
	// The API server begins a new log when one is large: audit-TIME.log are those before.
	paths, err := filepath.Glob(filepath.Join("/var/lib/virt-local", i.Name, "audit*.log"))
	if err != nil {
		return err
	}
	var logs []io.Reader
	for _, path := range paths {
		log, err := os.Open(path)
		if err != nil {
			return err
		}
		defer log.Close()
		logs = append(logs, log)
	}
	if err := rbac.Check(io.MultiReader(logs...), !testing.Short()); err != nil {
		return fmt.Errorf("rights and their use differ, by %d logs:\n%w", len(logs), err)
	}
	return nil
}

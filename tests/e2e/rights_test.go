//go:build e2e

package e2e

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/virtkit/virtkit/tests/instance"
	"github.com/virtkit/virtkit/tests/rbac"
)

// checkRights compares what the components may do with what they did in this run. It proves something only when all
// tests have run, on an instance that was made for them.
func checkRights(i *instance.Instance) error {
	if os.Getenv("VIRTKIT_E2E_CLUSTER") != "" || flag.Lookup("test.run").Value.String() != "" ||
		flag.Lookup("test.skip").Value.String() != "" {
		return nil
	}
	log, err := os.Open(filepath.Join("/var/lib/virt-local", i.Name, "audit.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	if err := rbac.Check(log); err != nil {
		return fmt.Errorf("rights and their use differ:\n%w", err)
	}
	return nil
}

package cluster

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/instance"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/provision"
)

// What no object is for is removed by the verb, which knows where all of it is, in whichever instance it is.
func TestKeptNamesTheVerb(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "pvc-1"), 0o700); err != nil {
		t.Fatal(err)
	}
	for want, in := range map[string]*instance.Instance{
		"sudo virt-local volume remove pvc-1": {
			Name: instance.DefaultName, StateDir: instance.DefaultStateDir(instance.DefaultName),
		},
		"sudo virt-local volume remove pvc-1 --name two --state-dir /state": {Name: "two", StateDir: "/state"},
	} {
		got, err := keptOf(in, provision.Disk{Dir: dir}, []string{"pvc-1"})
		if err != nil || len(got) != 1 || got[0].Remove != want || got[0].Path != filepath.Join(dir, "pvc-1") {
			t.Errorf("%+v, %v, want %q", got, err, want)
		}
	}
}

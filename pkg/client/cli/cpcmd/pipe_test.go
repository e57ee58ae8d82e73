//go:build unix

package cpcmd

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/virtkit/virtkit/pkg/stream/copyfile"
)

// A pipe is refused by its name, and nobody waits for its writer.
func TestPipeIsRefused(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	o := &Options{}
	o.plan.direction, o.plan.sources = copyfile.Push, []string{pipe, "-"}
	if err := o.checkHere(); err == nil || !strings.Contains(err.Error(), pipe+" is not a regular file") {
		t.Errorf("%v", err)
	}
}

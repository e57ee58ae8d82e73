package reflink

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// A tmpfs has none, and a directory that is not there is an error; nothing is left behind.
func TestPossible(t *testing.T) {
	if _, err := Possible("/nonexistent"); err == nil {
		t.Error("a directory that is not there is no error")
	}
	var on unix.Statfs_t
	if err := unix.Statfs("/dev/shm", &on); err != nil || on.Type != unix.TMPFS_MAGIC {
		t.Skip("there is no tmpfs at /dev/shm")
	}
	t.Setenv("TMPDIR", "/dev/shm")
	dir := t.TempDir()
	if possible, err := Possible(dir); err != nil || possible {
		t.Errorf("a tmpfs: %t, %v", possible, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
}

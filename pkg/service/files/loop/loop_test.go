package loop

import (
	"testing"

	"golang.org/x/sys/unix"
)

// A file is known by its inode, a device by its number, whatever becomes of its node in /dev.
func TestBacks(t *testing.T) {
	file := unix.Stat_t{Mode: unix.S_IFREG | 0o600, Ino: 7, Dev: 5}
	device := unix.Stat_t{Mode: unix.S_IFBLK | 0o660, Ino: 7, Dev: 5, Rdev: unix.Mkdev(7, 3)}
	for name, tc := range map[string]struct {
		of   *unix.Stat_t
		info unix.LoopInfo64
		want bool
	}{
		"file":            {&file, unix.LoopInfo64{Inode: 7, Device: 5}, true},
		"another file":    {&file, unix.LoopInfo64{Inode: 8, Device: 5}, false},
		"another device":  {&file, unix.LoopInfo64{Inode: 7, Device: 6}, false},
		"device":          {&device, unix.LoopInfo64{Inode: 7, Device: 5, Rdevice: unix.Mkdev(7, 3)}, true},
		"node made anew":  {&device, unix.LoopInfo64{Inode: 9, Device: 5, Rdevice: unix.Mkdev(7, 3)}, true},
		"inode of before": {&device, unix.LoopInfo64{Inode: 7, Device: 5, Rdevice: unix.Mkdev(7, 4)}, false},
	} {
		if got := backs(tc.of, &tc.info); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

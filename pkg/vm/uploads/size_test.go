package uploads

import "testing"

// sizes are disks of which no claim is known, bytes.
var sizes = []int64{
	1, 1 << 20, 31 << 20, 63083380, 200 << 20, 500 << 20, 900 << 20, 1100 << 20, 3 << 30, 10 << 30, 1 << 40,
}

// leftOn returns what file systems as their tools make them leave of a claim, bytes; that of XFS was measured.
var leftOn = map[string]func(claim int64) int64{
	"ext4": func(claim int64) int64 {
		journal := int64(4 << 20)
		for _, step := range []struct{ from, journal int64 }{
			{128 << 20, 16 << 20},
			{1 << 30, 32 << 20},
			{2 << 30, 64 << 20},
			{16 << 30, 128 << 20},
			{32 << 30, 256 << 20},
			{64 << 30, 512 << 20},
			{128 << 30, 1 << 30},
		} {
			if claim >= step.from {
				journal = step.journal
			}
		}
		return claim - claim/20 - claim/64 - journal
	},
	"XFS": func(claim int64) int64 {
		if claim < 300<<20 {
			return claim // it makes none so small
		}
		return claim - 64<<20 - claim/24
	},
}

// TestRoom: a disk fits on the claim that is made for it, whatever its file system.
func TestRoom(t *testing.T) {
	for _, disk := range sizes {
		room := Room(disk)
		for name, left := range leftOn {
			if fits := min(left(room), int64(float64(room)*(1-Overhead))); fits < disk || room%(1<<20) != 0 {
				t.Errorf("a disk of %d gets %d, where %d fit on %s", disk, room, fits, name)
			}
		}
		if room > disk+disk/8+65<<20 {
			t.Errorf("a disk of %d gets %d", disk, room)
		}
	}
}

// TestLeast: a disk that was as large as its claim allowed gets one of that size.
func TestLeast(t *testing.T) {
	for _, claim := range []int64{11 << 20, 64 << 20, 10 << 30} {
		if least := Least(int64(float64(claim) * (1 - Overhead))); least != claim {
			t.Errorf("the disk of a claim of %d gets %d", claim, least)
		}
	}
}

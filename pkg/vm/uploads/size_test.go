package uploads

import "testing"

// A disk fits on the claim that is made for it, as its upload reckons, and the claim is not much larger.
func TestRoom(t *testing.T) {
	const mebibyte = 1 << 20
	for _, disk := range []int64{1, mebibyte, 60 << 20, 63083380, 10 << 30, 1 << 50} {
		room := Room(disk)
		if fits := int64(float64(room) * (1 - Overhead)); fits < disk || room > disk+disk/10+mebibyte {
			t.Errorf("a disk of %d gets %d, where %d fit", disk, room, fits)
		}
	}
	claim := float64(64 * mebibyte)
	if room := Room(int64(claim * (1 - Overhead))); room != 64*mebibyte {
		t.Errorf("the disk of 64Mi gets %d", room)
	}
}

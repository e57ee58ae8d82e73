package uploads

import "math"

// Overhead is the share of a claim that its file system needs for itself, so that an uploaded disk does not get it;
// CDI's default.
const Overhead = 0.06

// Room returns the size of a claim with a file system on which a disk of so many bytes fits, in whole MiB.
func Room(disk int64) int64 {
	const mebibyte = 1 << 20
	return int64(math.Ceil(float64(disk)/(1-Overhead)/mebibyte)) * mebibyte
}

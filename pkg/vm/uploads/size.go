package uploads

import "math"

// Overhead is the share of a claim that its file system needs for itself, so that an uploaded disk does not get it;
// CDI's default. The file system may need more: an uploaded disk gets what is left.
const Overhead = 0.06

const mebibyte = 1 << 20

// Least returns the size of the smallest claim with a file system from which a disk of so many bytes may have come, in
// whole MiB.
func Least(disk int64) int64 { return wholeMebibytes(float64(disk) / (1 - Overhead)) }

// Room returns the size of a claim with a file system on which a disk of so many bytes fits, in whole MiB: also on an
// ext4 with the blocks that are root's, 5 %, its inodes, 1.6 %, and its journal, and on an XFS with its log of 64 MiB.
func Room(disk int64) int64 { return wholeMebibytes(float64(disk)*1.1 + 64*mebibyte) }

func wholeMebibytes(bytes float64) int64 { return int64(math.Ceil(bytes/mebibyte)) * mebibyte }

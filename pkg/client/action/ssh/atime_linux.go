package ssh

import (
	"io/fs"
	"syscall"
	"time"
)

// accessTime returns when a local file was read last.
func accessTime(info fs.FileInfo) time.Time {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return time.Unix(int64(stat.Atim.Sec), int64(stat.Atim.Nsec)) //nolint:unconvert // 32 bits on some machines
	}
	return info.ModTime()
}

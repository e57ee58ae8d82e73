package main

import (
	"archive/tar"
	"bufio"
	"fmt"
	"io"
	"time"
)

// File types in a cpio mode, as in stat(2).
var cpioTypes = map[byte]int64{tar.TypeReg: 0o100000, tar.TypeDir: 0o040000, tar.TypeSymlink: 0o120000}

// writeCPIO writes the tree as an initramfs, in the "newc" format of the kernel's
// Documentation/driver-api/early-userspace/buffer-format.rst: sorted, every file dated at.
func (t tree) writeCPIO(w io.Writer, at time.Time) error {
	out := bufio.NewWriter(w)
	inode := 0
	entry := func(name string, mode int64, n node, data []byte) {
		inode++
		links := 1
		if n.Type == tar.TypeDir {
			links = 2
		}
		// A bufio.Writer keeps its first error until Flush.
		_, _ = fmt.Fprintf(out, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
			inode, mode, n.UID, n.GID, links, at.Unix(), len(data), 0, 0, 0, 0, len(name)+1, 0)
		_, _ = out.WriteString(name)
		pad(out, 110+len(name)+1, 1)
		_, _ = out.Write(data)
		pad(out, len(data), 0)
	}
	for _, name := range t.names() {
		n := t[name]
		kind, ok := cpioTypes[n.Type]
		if !ok {
			return fmt.Errorf("%s: a file of type %q cannot be in an initramfs", name, n.Type)
		}
		data := n.Data
		if n.Type == tar.TypeSymlink {
			data = []byte(n.Link)
		}
		entry(name, kind|n.Mode, n, data)
	}
	inode = -1
	entry("TRAILER!!!", 0, node{}, nil)
	return out.Flush()
}

// pad writes zeros: first the given number, then up to a multiple of four counted from size.
func pad(w *bufio.Writer, size, first int) {
	for range first {
		_ = w.WriteByte(0)
	}
	for ; size%4 != 0; size++ {
		_ = w.WriteByte(0)
	}
}

package guests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/virtkit/virtkit/pkg/names"
)

// Leftovers finds what a virt-handler, by its process id, and its node still have of migrations, when a guest is in one
// pod, whose launchers are given, and has left others. It returns "" when there is nothing.
func Leftovers(handler int, launchers []int, current string, ended []string) string {
	proc := fmt.Sprintf("/proc/%d", handler)
	for _, pid := range append(launchers, handler) {
		sockets, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/unix", pid))
		if err != nil {
			return err.Error() // it has ended a moment ago
		}
		for line := range strings.Lines(string(sockets)) {
			// Num RefCount Protocol Flags Type St Inode Path
			if fields := strings.Fields(line); len(fields) == 8 &&
				strings.HasPrefix(filepath.Base(fields[7]), "migration-") {
				return "a socket " + fields[7]
			}
		}
	}
	mounts, err := os.ReadFile(filepath.Join(proc, "mountinfo"))
	if err != nil {
		return err.Error()
	}
	for _, uid := range ended {
		if uid == "" || uid == current {
			continue
		}
		for line := range strings.Lines(string(mounts)) {
			// ID parent device root mount point…
			if fields := strings.Fields(line); len(fields) > 4 && strings.Contains(fields[4], "/"+uid+"/") {
				return "mount " + fields[4]
			}
		}
		run := filepath.Join(proc, "root/pods", uid, "volumes/kubernetes.io~empty-dir", names.VolumeRun)
		if _, err := os.Lstat(run); err == nil {
			return "the volumes of pod " + uid
		}
	}
	for _, table := range []string{"net/tcp", "net/tcp6"} {
		text, err := os.ReadFile(filepath.Join(proc, table))
		if err != nil {
			return err.Error()
		}
		port := fmt.Sprintf(":%04X", names.PortMigration)
		for line := range strings.Lines(string(text)) {
			// sl local remote state…; state 1 is established.
			if fields := strings.Fields(line); len(fields) > 3 && fields[3] == "01" &&
				(strings.HasSuffix(fields[1], port) || strings.HasSuffix(fields[2], port)) {
				return "a connection " + fields[1] + " to " + fields[2]
			}
		}
	}
	return ""
}

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"strings"
)

// logMemory logs what the pod's processes use: PSS, KiB.
func (p *pod) logMemory() {
	for _, name := range []string{"virt-launcher", "libvirtd", "qemu"} {
		pid := p.process(name)
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			p.t.Log(name, err)
			continue
		}
		var out []string
		for line := range strings.Lines(string(b)) {
			if f := strings.Fields(line); len(f) == 3 &&
				(f[0] == "Rss:" || f[0] == "Pss:" || f[0] == "Private_Dirty:") {
				out = append(out, f[0]+f[1])
			}
		}
		p.t.Log(name, strings.Join(out, " "))
	}
}

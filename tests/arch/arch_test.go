// Package arch tests what the compiler cannot: which package may import which (docs/architecture.md), what the two
// small programs link, and that the files are free of one machine's names.
package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/virtkit/virtkit/"

// arrows says which of our packages a package may import, itself and those below it always. The longest
// matching key counts.
var arrows = map[string][]string{
	"cmd/virtctl":     {"pkg/cli"},
	"cmd/virt-server": {"pkg/virtapi", "pkg/controller", "pkg/handler", "pkg/launcher", "pkg/version", "pkg/config"},

	"pkg/cli":    {"pkg/printable", "pkg/action", "pkg/rfb", "pkg/store", "pkg/stream", "pkg/surface", "pkg/tui", "pkg/stats", "pkg/progress", "pkg/version", "pkg/names"},
	"pkg/tui":    {"pkg/printable", "pkg/rfb", "pkg/action", "pkg/stats", "pkg/progress", "pkg/store", "pkg/stream", "pkg/surface", "pkg/version", "pkg/names"},
	"pkg/action": {"pkg/conditions", "pkg/printable", "pkg/filesystem", "pkg/eviction", "pkg/migrations", "pkg/claim", "pkg/rollout", "pkg/rfb", "pkg/store", "pkg/stream", "pkg/surface", "pkg/instancetype", "pkg/host", "pkg/stats", "pkg/progress", "pkg/version", "pkg/names", "manifests"},
	"pkg/store":  {"pkg/migrations", "pkg/sizing", "pkg/surface", "pkg/progress", "pkg/names"},

	"pkg/virtapi":    servers("pkg/virtapi"),
	"pkg/controller": servers("pkg/controller", "pkg/frame", "pkg/launcher/launcherpb", "pkg/launcher/termination"),
	"pkg/handler":    servers("pkg/handler", "pkg/frame", "pkg/launcher/launcherpb", "pkg/launcher/termination", "pkg/host", "pkg/rfb"),
	"pkg/launcher":   servers("pkg/launcher"),
	// What all reconcilers share knows none of them.
	"pkg/frame": {},
	// Contract only.
	"pkg/launcher/launcherpb":  {},
	"pkg/launcher/termination": {"pkg/launcher/launcherpb", "pkg/names"},

	"pkg/vhostmd":      {},
	"pkg/domain":       {"pkg/filesystem", "pkg/passthrough", "pkg/vhostmd", "pkg/names", "pkg/network", "pkg/surface", "pkg/claim", "pkg/hotplug", "pkg/sizing", "pkg/pci"},
	"pkg/surface":      {"pkg/migrations", "pkg/filesystem", "pkg/names", "pkg/version", "pkg/claim", "pkg/hotplug", "pkg/vmstate", "pkg/sizing", "pkg/pci"},
	"pkg/pci":          {},
	"pkg/passthrough":  {},
	"pkg/instancetype": {"pkg/surface", "pkg/claim"},
	"pkg/network":      {"pkg/names"},
	"pkg/disk":         {"pkg/filesystem", "pkg/vhostmd", "pkg/names", "pkg/surface", "pkg/domain", "pkg/claim", "pkg/hotplug"},
	"pkg/hypervisor":   {"pkg/names"},
	"pkg/stream":       {},
	"pkg/rfb":          {},
	"pkg/host":         {},
	"pkg/stats":        {},
	"pkg/metrics":      {"pkg/version", "manifests"},
	"pkg/printable":    {},
	"pkg/progress":     {},
	"pkg/certs":        {"pkg/names"},
	"pkg/config":       {"pkg/names", "pkg/surface", "pkg/certs", "pkg/sizing"},
	"pkg/boottime":     {},
	"pkg/fencing":      {},
	"pkg/names":        {},
	"pkg/rollout":      {},
	"pkg/hotplug":      {"pkg/claim"},
	"pkg/conditions":   {},
	"pkg/sizing":       {"pkg/conditions"},
	"pkg/claim":        {},
	"pkg/filesystem":   {"pkg/names"},
	"pkg/pool":         {},
	"pkg/vmstate":      {},
	"pkg/eviction":     {"pkg/conditions", "pkg/migrations"},
	"pkg/migrations":   {"pkg/conditions"},
	"pkg/version":      {},
	"manifests":        {},
	"images":           {"pkg/names", "pkg/version"},
}

// servers is what every server may import.
func servers(more ...string) []string {
	return append(more, "pkg/boottime", "pkg/conditions", "pkg/fencing", "pkg/metrics", "pkg/rollout", "pkg/surface", "pkg/instancetype", "pkg/domain", "pkg/network", "pkg/disk", "pkg/hypervisor", "pkg/stream",
		"pkg/certs", "pkg/config", "pkg/stats", "pkg/progress", "pkg/names", "pkg/version", "pkg/claim", "pkg/hotplug", "pkg/vmstate", "pkg/eviction", "pkg/migrations", "pkg/sizing", "pkg/pool", "pkg/vhostmd", "pkg/passthrough", "pkg/filesystem")
}

// pure packages do no I/O. `net` is not listed since MAC addresses live there.
var pure = []string{"pkg/conditions", "pkg/rollout", "pkg/domain", "pkg/surface", "pkg/instancetype", "pkg/network", "pkg/names", "pkg/claim", "pkg/hotplug", "pkg/sizing", "pkg/eviction", "pkg/migrations", "pkg/vmstate", "pkg/pool", "pkg/pci", "pkg/vhostmd", "pkg/passthrough", "pkg/filesystem", "pkg/printable", "pkg/fencing"}

var sideEffects = []string{"os", "os/exec", "net/http", "syscall", "log", "golang.org/x/sys/", "k8s.io/client-go/", "github.com/vishvananda/"}

type goPackage struct {
	ImportPath string
	Name       string
	Imports    []string
	Deps       []string
}

func list(t *testing.T, args ...string) []goPackage {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-e", "-json=ImportPath,Name,Imports,Deps"}, args...)...)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1") // so that the packages that need cgo are seen
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %v: %v", args, err)
	}
	var all []goPackage
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

func TestArrows(t *testing.T) {
	for _, p := range list(t, "-tags", "libvirt_dlopen", "./cmd/...", "./pkg/...", "./manifests/...", "./images/...") {
		from := strings.TrimPrefix(p.ImportPath, module)
		room := ""
		for key := range arrows {
			if within(from, key) && len(key) > len(room) {
				room = key
			}
		}
		if room == "" {
			t.Errorf("%s: a new room; say in tests/arch what it may import, and in docs/architecture.md what it is for", from)
			continue
		}
		for _, imported := range p.Imports {
			to, ours := strings.CutPrefix(imported, module)
			if !ours || within(to, room) {
				continue
			}
			if !slices.ContainsFunc(arrows[room], func(allowed string) bool { return within(to, allowed) }) {
				t.Errorf("%s imports %s: %s may import %v only", from, to, room, arrows[room])
			}
		}
		if slices.Contains(pure, from) {
			for _, imported := range p.Imports {
				for _, effect := range sideEffects {
					if imported == effect || strings.HasSuffix(effect, "/") && strings.HasPrefix(imported, effect) {
						t.Errorf("%s imports %s, but is to be pure", from, imported)
					}
				}
			}
		}
		if slices.Contains(p.Imports, "libvirt.org/go/libvirt") && from != "pkg/hypervisor/libvirt" {
			t.Errorf("%s imports libvirt's binding; only pkg/hypervisor/libvirt may", from)
		}
	}
}

// linked says which modules a program must not link, as each costs memory or start time in a place where that counts.
var linked = []struct {
	program   string
	tags      string
	forbidden []string
	why       string
}{
	{
		"./cmd/virt-server", "launcher,libvirt_dlopen",
		[]string{"k8s.io/client-go/", "k8s.io/apiserver/", "sigs.k8s.io/controller-runtime/"},
		"it runs in every VM's pod",
	},
	{
		"./cmd/virtctl", "",
		[]string{"k8s.io/kubectl/", "k8s.io/client-go/kubernetes/typed", "k8s.io/apiserver/", "sigs.k8s.io/controller-runtime/", "libvirt.org/go/libvirt"},
		"it must start in milliseconds",
	},
}

func TestLinked(t *testing.T) {
	for _, test := range linked {
		for _, p := range list(t, "-tags", test.tags, test.program) {
			for _, dep := range p.Deps {
				for _, f := range test.forbidden {
					// The module itself, not one whose name continues it.
					if within(dep, strings.TrimSuffix(f, "/")) {
						t.Errorf("%s (tags %q) links %s: %s", test.program, test.tags, dep, test.why)
					}
				}
			}
		}
	}
}

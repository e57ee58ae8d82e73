// Package arch tests what the compiler cannot: which package may import which (docs/architecture.md), what the
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
// matching key counts. pkg/ has a room for each of the picture's parts in docs/architecture.md.
var arrows = map[string][]string{
	"cmd/virtctl": {"pkg/client/cli"},
	"cmd/virt-server": {
		"pkg/virtapi", "pkg/controller", "pkg/handler", "pkg/launcher", "pkg/exporter", "pkg/names", "pkg/version",
		"pkg/service/config",
	},

	// The client. It knows the servers by the API and by streams only.
	"pkg/client/cli":       with(client, "pkg/client/action", "pkg/client/store", "pkg/client/tui"),
	"pkg/client/tui":       with(client, "pkg/client/action", "pkg/client/store"),
	"pkg/client/action":    with(client, "pkg/client/store", "manifests"),
	"pkg/client/store":     {"pkg/report", "pkg/vm", "pkg/names"},
	"pkg/client/printable": {},

	// The four services. Of each other they know the launcher's protocol.
	"pkg/virtapi":    service,
	"pkg/controller": with(service, "pkg/service/frame", "pkg/launcher/launcherpb", "pkg/launcher/termination"),
	"pkg/handler": with(service, "pkg/service/frame", "pkg/launcher/launcherpb", "pkg/launcher/termination",
		"pkg/launcher/hypervisor"),
	"pkg/launcher": service,
	// The server of the pods of uploads, which is a program of its own.
	"pkg/launcher/uploader": service,
	// The server of the pods of exports, and the proxy before them.
	"pkg/exporter": service,
	// Contract only.
	"pkg/launcher/hypervisor":  {"pkg/names"},
	"pkg/launcher/launcherpb":  {},
	"pkg/launcher/termination": {"pkg/launcher/launcherpb", "pkg/names"},

	// The rules about a VM.
	"pkg/vm/canonical":   {},
	"pkg/vm/claims":      {"pkg/vm/life"},
	"pkg/vm/clones":      {"pkg/vm/claims", "pkg/vm/uploads", "pkg/vm/vmstate"},
	"pkg/vm/conditions":  {},
	"pkg/vm/imageformat": {},
	"pkg/vm/uploads":     {"pkg/names", "pkg/vm/imageformat"},
	"pkg/vm/exports":     {"pkg/names"},
	"pkg/vm/disk": {
		"pkg/vm/claims", "pkg/vm/domain", "pkg/vm/filesystems", "pkg/vm/hotplug", "pkg/vm/identity", "pkg/vm/surface",
		"pkg/vm/vhostmd", "pkg/vm/volumemigration", "pkg/names",
	},
	"pkg/vm/domain": {
		"pkg/vm/claims", "pkg/vm/filesystems", "pkg/vm/hotplug", "pkg/vm/network", "pkg/vm/passthrough", "pkg/vm/pci",
		"pkg/vm/peripherals", "pkg/vm/qos", "pkg/vm/sizing", "pkg/vm/surface", "pkg/vm/vhostmd", "pkg/names",
	},
	"pkg/vm/eviction":     {"pkg/vm/conditions", "pkg/vm/migrations", "pkg/vm/volumemigration"},
	"pkg/vm/expansion":    {"pkg/vm/conditions"},
	"pkg/vm/fencing":      {},
	"pkg/vm/filesystems":  {"pkg/names"},
	"pkg/vm/hotplug":      {"pkg/names", "pkg/vm/claims", "pkg/vm/reserved"},
	"pkg/vm/identity":     {"pkg/names"},
	"pkg/vm/instancetype": {"pkg/names", "pkg/vm/canonical", "pkg/vm/claims", "pkg/vm/sizing", "pkg/vm/surface"},
	"pkg/vm/launcherlog":  {},
	"pkg/vm/life":         {"pkg/names", "pkg/vm/conditions"},
	"pkg/vm/migrations":   {"pkg/vm/conditions"},
	"pkg/vm/addresses":    {},
	"pkg/vm/macaddress":   {"pkg/vm/addresses"},
	"pkg/vm/ipaddress":    {"pkg/vm/addresses", "pkg/vm/macaddress"},
	"pkg/vm/network": {
		"pkg/names", "pkg/vm/identity", "pkg/vm/ipaddress", "pkg/vm/macaddress", "pkg/vm/qos",
		"pkg/vm/reserved", "pkg/vm/sizing",
	},
	"pkg/vm/ovf": {
		"pkg/vm/claims", "pkg/vm/domain", "pkg/vm/filesystems", "pkg/vm/macaddress", "pkg/vm/sizing",
	},
	"pkg/vm/passthrough": {},
	"pkg/vm/pci":         {},
	"pkg/vm/peripherals": {},
	"pkg/vm/pools":       {"pkg/vm/reserved"},
	"pkg/vm/qos":         {"pkg/vm/claims"},
	"pkg/vm/reserved":    {},
	"pkg/vm/runstrategy": {},
	"pkg/vm/rollout": {
		"pkg/vm/conditions", "pkg/vm/hotplug", "pkg/vm/life", "pkg/vm/migrations", "pkg/vm/network", "pkg/vm/qos",
		"pkg/vm/reserved", "pkg/vm/sizing", "pkg/vm/surface", "pkg/vm/volumemigration",
	},
	"pkg/vm/savedmemory": {"pkg/vm/reserved"},
	"pkg/vm/snapshots": {
		"pkg/names", "pkg/vm/claims", "pkg/vm/conditions", "pkg/vm/hotplug", "pkg/vm/life", "pkg/vm/migrations",
		"pkg/vm/passthrough", "pkg/vm/savedmemory", "pkg/vm/vmstate",
	},
	"pkg/vm/sizing": {"pkg/vm/conditions"},
	"pkg/vm/surface": {
		"pkg/vm/claims", "pkg/vm/filesystems", "pkg/vm/hotplug", "pkg/vm/ipaddress", "pkg/vm/launcherlog",
		"pkg/vm/life", "pkg/vm/macaddress", "pkg/vm/migrations", "pkg/vm/network", "pkg/vm/passthrough", "pkg/vm/pci",
		"pkg/vm/peripherals", "pkg/vm/qos", "pkg/vm/reserved", "pkg/vm/sizing",
		"pkg/vm/vmstate", "pkg/vm/volumemigration", "pkg/names", "pkg/version",
	},
	"pkg/vm/vhostmd": {},
	"pkg/vm/vmstate": {"pkg/names", "pkg/vm/migrations", "pkg/vm/peripherals"},
	"pkg/vm/volumemigration": {
		"pkg/names", "pkg/vm/claims", "pkg/vm/conditions", "pkg/vm/filesystems", "pkg/vm/hotplug", "pkg/vm/life",
		"pkg/vm/migrations", "pkg/vm/reserved", "pkg/vm/uploads",
	},

	// What the services share, and what all share.
	"pkg/service/certs":   {"pkg/waits", "pkg/names"},
	"pkg/service/config":  {"pkg/service/certs", "pkg/vm/sizing", "pkg/vm/surface", "pkg/names"},
	"pkg/service/files":   {},
	"pkg/service/frame":   {"pkg/names"}, // knows none of the reconcilers
	"pkg/service/metrics": {"pkg/version", "manifests"},
	"pkg/names":           {},
	"pkg/waits":           {},
	"pkg/report":          {},
	"pkg/stream":          {},
	"pkg/version":         {},

	"manifests": {},
	"images":    {"pkg/names", "pkg/version"},

	// What tests share. Unit tests of pkg import it, too.
	"tests/frames": {"pkg/vm/network"},
}

// What the client's packages and the services may all import.
var (
	client = []string{
		"pkg/client/printable", "pkg/waits", "pkg/report", "pkg/stream", "pkg/vm", "pkg/names", "pkg/version",
	}
	service = []string{
		"pkg/waits", "pkg/service/certs", "pkg/service/config", "pkg/service/files", "pkg/service/metrics",
		"pkg/report", "pkg/stream", "pkg/vm", "pkg/names", "pkg/version",
	}
)

func with(all []string, more ...string) []string { return append(slices.Clone(all), more...) }

// pure packages do no I/O. `net` is not listed since MAC addresses live there.
var pure = []string{
	"pkg/vm/conditions", "pkg/vm/rollout", "pkg/vm/domain", "pkg/vm/surface", "pkg/vm/instancetype", "pkg/vm/network",
	"pkg/names", "pkg/vm/claims", "pkg/vm/hotplug", "pkg/vm/sizing", "pkg/vm/eviction", "pkg/vm/migrations",
	"pkg/vm/vmstate", "pkg/vm/pools", "pkg/vm/runstrategy",
	"pkg/vm/pci", "pkg/vm/vhostmd", "pkg/vm/passthrough", "pkg/vm/filesystems",
	"pkg/client/printable", "pkg/vm/fencing", "pkg/vm/canonical", "pkg/vm/launcherlog", "pkg/vm/identity",
	"pkg/vm/macaddress", "pkg/vm/ipaddress", "pkg/vm/addresses",
	"pkg/vm/savedmemory", "pkg/vm/snapshots", "pkg/vm/clones", "pkg/vm/life", "pkg/vm/imageformat", "pkg/vm/uploads",
	"pkg/vm/exports", "pkg/vm/peripherals", "pkg/vm/expansion",
	"pkg/vm/volumemigration", "pkg/vm/ovf", "pkg/vm/reserved",
}

var sideEffects = []string{
	"os", "os/exec", "net/http", "syscall", "log", "golang.org/x/sys/", "k8s.io/client-go/", "github.com/vishvananda/",
}

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
	for _, p := range list(t, "-tags", "libvirt_dlopen", "./cmd/...", "./pkg/...", "./manifests/...", "./images/...",
		"./tests/frames/...") {
		from := strings.TrimPrefix(p.ImportPath, module)
		room := ""
		for key := range arrows {
			if within(from, key) && len(key) > len(room) {
				room = key
			}
		}
		if room == "" {
			t.Errorf("%s: no room has it; say in tests/arch what it may import, "+
				"and in docs/architecture.md what it is for", from)
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
		if slices.Contains(p.Imports, "libvirt.org/go/libvirt") && from != "pkg/launcher/hypervisor/libvirt" {
			t.Errorf("%s imports libvirt's binding; only pkg/launcher/hypervisor/libvirt may", from)
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
		"./cmd/virt-server", "exporter",
		[]string{
			"k8s.io/client-go/", "k8s.io/apiserver/", "sigs.k8s.io/controller-runtime/", "libvirt.org/go/libvirt",
		},
		"it runs in every export's pod",
	},
	{
		"./cmd/virtctl", "",
		[]string{
			"k8s.io/kubectl/", "k8s.io/client-go/kubernetes/typed", "k8s.io/apiserver/",
			"sigs.k8s.io/controller-runtime/", "libvirt.org/go/libvirt",
		},
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

// Package instance says what one virt-local cluster is called and where its things lie: the values
// that `up` chose once and every later command reads again (instance.json), the layout of the
// state directory, and the machine-wide register that keeps instances apart.
//
//	<state>/                     default /var/lib/virt-local/<name>, mode 0700
//	  instance.json              Instance
//	  lock                       flock'ed by a command that changes the instance
//	  pki/                       certificates, keys and kubeconfigs of the components
//	  etcd/  audit.log           the control plane's
//	  csi/                       what the StorageClasses hand out
//	  volumes/                   what the StorageClass local hands out with --storage hostpath
//	  logs/                      one file a component; logs/<node>/ for a node's
//	  run/                       pid files
//	  bin/                       the container shim, Multus
//	  nodes/<node>/etc           a node's configuration
//	  nodes/<node>/var           a node's /var: images, pods, whatever its pods put there
package instance

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"
)

// What Storage may be.
const (
	// CSI is a CSI driver with Kubernetes' own sidecars.
	CSI = "csi"
	// HostPath is package provision: directories, and loop devices on files.
	HostPath = "hostpath"
)

// DefaultName is the instance that commands mean when --name is not given.
const DefaultName = "virt-local"

// Instance holds what `up` decided when it made the cluster; see instance.json.
type Instance struct {
	Name     string `json:"name"`
	StateDir string `json:"stateDir"`
	Slot     Slot   `json:"slot"`
	Nodes    int    `json:"nodes"`
	// NodeMonitorGrace is how long a silent node stays Ready; zero is Kubernetes' default (50 s).
	NodeMonitorGrace time.Duration `json:"nodeMonitorGrace,omitempty"`
	// Multus runs as the nodes' CNI plugin, and LANs join the nodes.
	Multus bool `json:"multus,omitempty"`
	// Storage is where volumes come from, CSI or HostPath. Empty is HostPath until `up` takes the instance over:
	// virt-local had no CSI driver when it was made.
	Storage string `json:"storage,omitempty"`
	// IPFamily is IPv4, IPv6 or Dual. Empty is IPv4: virt-local had nothing else when the instance was made.
	IPFamily string `json:"ipFamily,omitempty"`
	// Kubeconfig is the file that `up` merged the context into, so that `down` can take it out again.
	Kubeconfig string `json:"kubeconfig,omitempty"`
	// Kubeconfigs are other files that earlier calls of `up` merged the context into; `down` takes it out of them, too.
	Kubeconfigs []string  `json:"kubeconfigs,omitempty"`
	Created     time.Time `json:"created"`
}

var validName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$`)

// ValidateName accepts DNS labels of up to 40 characters: the name becomes part of cgroups,
// firewall tables and kubeconfig contexts.
func ValidateName(name string) error {
	if !validName.MatchString(name) {
		return fmt.Errorf("invalid --name %q: use lower-case letters, digits and dashes, at most 40, beginning and "+
			"ending with a letter or digit", name)
	}
	return nil
}

// DefaultStateDir returns where an instance lives unless --state-dir says otherwise.
func DefaultStateDir(name string) string { return filepath.Join("/var/lib/virt-local", name) }

// ErrNotFound is returned by Load when there is no instance in the state directory.
var ErrNotFound = errors.New("no such instance")

// Load reads the instance in stateDir.
func Load(stateDir string) (*Instance, error) {
	b, err := os.ReadFile(filepath.Join(stateDir, "instance.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w in %s", ErrNotFound, stateDir)
	}
	if err != nil {
		return nil, fmt.Errorf("read instance: %w", err)
	}
	in := new(Instance)
	if err := json.Unmarshal(b, in); err != nil {
		return nil, fmt.Errorf("read %s: %w", filepath.Join(stateDir, "instance.json"), err)
	}
	return in, nil
}

// Save writes instance.json.
func (in *Instance) Save() error {
	b, err := json.MarshalIndent(in, "", "  ")
	if err != nil {
		return fmt.Errorf("save instance: %w", err)
	}
	return WriteFile(in.Path("instance.json"), append(b, '\n'), 0o600)
}

// Path returns a path below the state directory.
func (in *Instance) Path(elem ...string) string {
	return filepath.Join(append([]string{in.StateDir}, elem...)...)
}

// Server returns the URL of the API server.
func (in *Instance) Server() string { return "https://" + in.Address() }

// Address returns where the API server listens.
func (in *Instance) Address() string { return netip.AddrPortFrom(in.HostIPs()[0], 6443).String() }

// Cgroup returns the instance's cgroup below every hierarchy's root.
func (in *Instance) Cgroup() string { return "/virt-local-" + in.Name }

// NodeList returns the nodes in order.
func (in *Instance) NodeList() []Node {
	nodes := make([]Node, 0, in.Nodes)
	for k := 1; k <= in.Nodes; k++ {
		nodes = append(nodes, Node{in, k})
	}
	return nodes
}

// Node is one of an instance's nodes.
type Node struct {
	*Instance
	// Number counts from 1.
	Number int
}

// NodeName returns the name of the Node object and the host name inside.
func (n Node) NodeName() string { return fmt.Sprintf("node%d", n.Number) }

// Dir returns a path below the node's part of the state directory.
func (n Node) Dir(elem ...string) string {
	return n.Path(append([]string{"nodes", n.NodeName()}, elem...)...)
}

// LogDir returns the directory that has a log file for each of the node's components.
func (n Node) LogDir() string { return n.Path("logs", n.NodeName()) }

// NodeCgroup returns the parent of the cgroups of the node's pods.
func (n Node) NodeCgroup() string { return n.Cgroup() + "/" + n.NodeName() }

// WriteFile replaces a file at once: a reader, or a crash, sees the old or the new content. It
// leaves a file that already has the content alone, so that modification times show changes.
func WriteFile(path string, content []byte, mode fs.FileMode) error {
	if old, err := os.ReadFile(path); err == nil && string(old) == string(content) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(mode), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// ChooseKubeconfig makes path the file that the context is merged into, and remembers the one before, which has it.
func (i *Instance) ChooseKubeconfig(path string) {
	if i.Kubeconfig != "" && i.Kubeconfig != path && !slices.Contains(i.Kubeconfigs, i.Kubeconfig) {
		i.Kubeconfigs = append(i.Kubeconfigs, i.Kubeconfig)
	}
	i.Kubeconfig = path
	i.Kubeconfigs = slices.DeleteFunc(i.Kubeconfigs, func(other string) bool { return other == path })
}

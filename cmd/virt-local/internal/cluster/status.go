package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/controlplane"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/csi"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/hostnet"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/instance"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/kubeconfig"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/node"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/process"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/provision"
)

// Status is what `virt-local status -o json` shows; its keys are a contract.
type Status struct {
	Name       string          `json:"name"`
	StateDir   string          `json:"stateDir"`
	Server     string          `json:"server"`
	Kubeconfig string          `json:"kubeconfig"`
	AuditLog   string          `json:"auditLog"`
	Ready      bool            `json:"ready"`
	Components []ProcessStatus `json:"components"`
	Nodes      []NodeStatus    `json:"nodes"`
	// StorageLimits is what volumes cannot do on this machine's file system; empty when they can do everything.
	StorageLimits string `json:"storageLimits,omitempty"`
	// Kept is data without a PersistentVolume, which nothing removes by itself.
	Kept []provision.Data `json:"kept,omitempty"`
}

// NodeStatus is a node, and whether Kubernetes has it as Ready.
type NodeStatus struct {
	Name   string `json:"name"`
	IP     string `json:"ip"`
	PodNet string `json:"podNetwork"`
	// IPs and PodNets are of both families; empty when there is one.
	IPs     []string `json:"ips,omitempty"`
	PodNets []string `json:"podNetworks,omitempty"`
	Ready   bool     `json:"ready"`
	// Cut says that `virt-local node cut` has taken it off the network.
	Cut     bool   `json:"cut,omitempty"`
	Message string `json:"message,omitempty"`
}

// ProcessStatus is a process of the cluster.
type ProcessStatus struct {
	// Name is control-plane, init, containerd, kubelet or kube-proxy.
	Name    string `json:"name"`
	Node    string `json:"node,omitempty"`
	Running bool   `json:"running"`
	// PID is as the machine sees it.
	PID        int     `json:"pid,omitempty"`
	AgeSeconds float64 `json:"ageSeconds,omitempty"`
	// MemoryBytes is resident memory.
	MemoryBytes int64  `json:"memoryBytes,omitempty"`
	Log         string `json:"log"`
}

// NodePrograms are the programs that each node's init runs; the last not with --storage hostpath.
var NodePrograms = []string{"containerd", "kubelet", "kube-proxy", csi.Node}

// nodePrograms returns the programs of an instance's nodes.
func nodePrograms(in *instance.Instance) []string {
	if in.Storage == instance.CSI {
		return NodePrograms
	}
	return NodePrograms[:len(NodePrograms)-1]
}

// ReadStatus looks at the instance's processes and asks the API server about its nodes.
func ReadStatus(ctx context.Context, in *instance.Instance) (Status, error) {
	s := Status{
		Name: in.Name, StateDir: in.StateDir, Server: in.Server(), Kubeconfig: in.Kubeconfig,
		AuditLog: in.Path("audit.log"),
	}
	id, err := process.ReadFile(ControlPlanePIDFile(in))
	if err != nil {
		return s, err
	}
	s.Components = append(s.Components, describe(id, ProcessStatus{Name: "control-plane", Log: ControlPlaneLog(in)}))
	if in.Storage == instance.CSI {
		controller, err := csiController(in, id)
		if err != nil {
			return s, err
		}
		s.Components = append(s.Components, controller)
	}
	for _, n := range in.NodeList() {
		programs, err := nodeProcesses(n)
		if err != nil {
			return s, err
		}
		s.Components = append(s.Components, programs...)
	}
	s.Ready = !slices.ContainsFunc(s.Components, func(p ProcessStatus) bool { return !p.Running })
	check := nodeReady(in)
	for _, n := range in.NodeList() {
		ips, podNets := instance.Texts(n.IPs()), instance.Texts(n.NodePodNets())
		ns := NodeStatus{Name: n.NodeName(), IP: ips[0], PodNet: podNets[0]}
		if len(ips) > 1 {
			ns.IPs, ns.PodNets = ips, podNets
		}
		if ns.Cut, err = hostnet.IsCut(n); err != nil {
			return s, err
		}
		if err := check(ctx, ns.Name, time.Time{}); err != nil {
			ns.Message = err.Error()
		} else if ns.Cut {
			ns.Message = "it is cut off, which Kubernetes has not noticed yet"
		} else {
			ns.Ready = true
		}
		s.Ready = s.Ready && ns.Ready
		s.Nodes = append(s.Nodes, ns)
	}
	admin, err := Admin(in)
	answers := err == nil && controlplane.HealthCheck(admin, "/readyz")(ctx) == nil
	if !answers {
		s.Ready = false
		return s, nil
	}
	s.StorageLimits = csi.Limits(in)
	s.Kept, err = kept(ctx, in, admin)
	return s, err
}

// kept returns the data that no PersistentVolume is for.
func kept(ctx context.Context, in *instance.Instance, admin kubeconfig.Credentials) ([]provision.Data, error) {
	client, err := clientFor(admin, "virt-local-status")
	if err != nil {
		return nil, err
	}
	disk := provision.Disk{Dir: in.Path("volumes")}
	volumes, err := provision.Unowned(ctx, client, disk)
	if err != nil {
		return nil, err
	}
	var all []provision.Data
	if in.Storage == instance.CSI {
		orphans, err := csi.Orphans(ctx, in)
		if err != nil {
			return nil, err
		}
		for _, o := range orphans {
			all = append(all, provision.Data{
				Volume: o.Name, Path: o.Kind + " " + o.Name, Bytes: o.Bytes, Remove: removal(in, o.Name),
			})
		}
	}
	old, err := keptOf(in, disk, volumes)
	return append(all, old...), err
}

// keptOf describes the data of volumes of the provisioner that there was before the CSI driver.
func keptOf(in *instance.Instance, disk provision.Disk, volumes []string) ([]provision.Data, error) {
	var all []provision.Data
	for _, volume := range volumes {
		data, err := disk.Describe(volume)
		if err != nil {
			return nil, err
		}
		data.Remove = removal(in, volume)
		all = append(all, data)
	}
	return all, nil
}

// removal returns the command that removes kept data for good, whose it ever was.
func removal(in *instance.Instance, volume string) string {
	return "sudo virt-local volume remove " + volume + nameFlags(in)
}

// nameFlags returns the flags that name an instance, for use in hints.
func nameFlags(in *instance.Instance) string {
	flags := ""
	if in.Name != instance.DefaultName {
		flags += " --name " + in.Name
	}
	if in.StateDir != instance.DefaultStateDir(in.Name) {
		flags += " --state-dir " + in.StateDir
	}
	return flags
}

func describe(id process.ID, p ProcessStatus) ProcessStatus {
	if !id.Alive() {
		return p
	}
	usage, err := process.ReadUsage(id.PID)
	if err != nil {
		return p // it ended this moment
	}
	p.Running, p.PID, p.MemoryBytes, p.AgeSeconds = true, id.PID, usage.RSS,
		usage.Age.Round(10*time.Millisecond).Seconds()
	return p
}

func nodeProcesses(n instance.Node) ([]ProcessStatus, error) {
	id, err := process.ReadFile(node.PIDFile(n))
	if err != nil {
		return nil, err
	}
	all := []ProcessStatus{describe(id, ProcessStatus{Name: "init", Node: n.NodeName(), Log: LogFile(n, "init")})}
	children, err := childrenOf(id)
	if err != nil {
		return nil, err
	}
	for _, name := range nodePrograms(n.Instance) {
		all = append(all, findProgram(children, ProcessStatus{Name: name, Node: n.NodeName(), Log: LogFile(n, name)}))
	}
	return all, nil
}

// csiController describes the CSI driver's controller, a child of the control plane.
func csiController(in *instance.Instance, controlPlane process.ID) (ProcessStatus, error) {
	children, err := childrenOf(controlPlane)
	if err != nil {
		return ProcessStatus{}, err
	}
	return findProgram(children, ProcessStatus{Name: csi.Controller, Log: csi.ControllerLog(in)}), nil
}

// childrenOf returns the children of a process with their arguments; none of a process that has ended.
func childrenOf(id process.ID) (map[int][]string, error) {
	if !id.Alive() {
		return nil, nil
	}
	return process.Children(id.PID)
}

// findProgram describes the child that runs the program p.Name.
func findProgram(children map[int][]string, p ProcessStatus) ProcessStatus {
	for pid, args := range children {
		if len(args) > 1 && args[1] == p.Name {
			if id, err := process.Identify(pid); err == nil {
				p = describe(id, p)
			}
		}
	}
	return p
}

// LogFile returns the log of one of a node's programs, or of its init.
func LogFile(n instance.Node, program string) string {
	return filepath.Join(n.LogDir(), program+".log")
}

// LogFiles returns the logs of the components that match; empty strings match all.
func LogFiles(in *instance.Instance, componentName, nodeName string) ([]ProcessStatus, error) {
	var logs []ProcessStatus
	if nodeName == "" && (componentName == "" || componentName == "control-plane") {
		logs = append(logs, ProcessStatus{Name: "control-plane", Log: ControlPlaneLog(in)})
	}
	known := []string{"control-plane"}
	if in.Storage == instance.CSI {
		known = append(known, csi.Controller)
		if nodeName == "" && (componentName == "" || componentName == csi.Controller) {
			logs = append(logs, ProcessStatus{Name: csi.Controller, Log: csi.ControllerLog(in)})
		}
	}
	for _, n := range in.NodeList() {
		for _, program := range append([]string{"init"}, nodePrograms(in)...) {
			if n.Number == 1 {
				known = append(known, program)
			}
			if (nodeName == "" || nodeName == n.NodeName()) && (componentName == "" || componentName == program) {
				logs = append(logs, ProcessStatus{Name: program, Node: n.NodeName(), Log: LogFile(n, program)})
			}
		}
	}
	switch {
	case componentName != "" && !slices.Contains(known, componentName):
		return nil, fmt.Errorf("unknown component %q: there are %s", componentName, strings.Join(known, ", "))
	case len(logs) == 0 && (componentName == "control-plane" || componentName == csi.Controller):
		return nil, fmt.Errorf("%s is not on a node: leave out --node", componentName)
	case len(logs) == 0:
		return nil, fmt.Errorf("unknown node %q: there are node1 to node%d", nodeName, in.Nodes)
	}
	return logs, nil
}

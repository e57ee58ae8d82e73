// Package overview says what a cluster's machines, nodes and migrations are, once as a report or change by change as
// lines: the dashboard for programs, and for people who have the screen read to them.
package overview

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/list"
	"github.com/virtkit/virtkit/pkg/client/store"
)

// Kind of a Report.
const Kind = "DashboardReport"

// Report is what `dashboard --once -o json` prints.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	// Context is the kubeconfig's, Namespace the one that is shown; empty is all.
	Context   string `json:"context"`
	Namespace string `json:"namespace"`
	// Machines are by namespace and name, Nodes by name, Migrations the newest first.
	Machines   []Machine   `json:"machines"`
	Nodes      []Node      `json:"nodes"`
	Migrations []Migration `json:"migrations"`
	// Unreadable says of what cannot be read why.
	Unreadable map[string]string `json:"unreadable,omitempty"`
}

// RowLists returns the key of the machines.
func (r *Report) RowLists() []string { return []string{"machines"} }

// Machine is a VirtualMachine with its instance, or an instance alone.
type Machine struct {
	// Namespace and Name are the machine's.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Instance is whether there is no VirtualMachine.
	Instance bool `json:"instance"`
	// Status is the VM's printableStatus, or the instance's phase.
	Status string `json:"status"`
	// Ready is the condition.
	Ready bool `json:"ready"`
	// RunStrategy is absent for an instance.
	RunStrategy string `json:"runStrategy,omitempty"`
	// Node is where it runs, IPs its addresses.
	Node string   `json:"node,omitempty"`
	IPs  []string `json:"ips,omitempty"`
	// CPUs is the number of virtual CPUs, MemoryBytes what the guest has.
	CPUs        uint32 `json:"cpus"`
	MemoryBytes int64  `json:"memoryBytes"`
	// GuestOS is the agent's word.
	GuestOS string `json:"guestOS,omitempty"`
	// Paused, AgentConnected, LiveMigratable, Migrating and Evacuating are conditions.
	Paused         bool `json:"paused,omitempty"`
	AgentConnected bool `json:"agentConnected,omitempty"`
	LiveMigratable bool `json:"liveMigratable,omitempty"`
	Migrating      bool `json:"migrating,omitempty"`
	Evacuating     bool `json:"evacuating,omitempty"`
	// Trouble is the message of the condition that says best what is wrong.
	Trouble string `json:"trouble,omitempty"`
	// Created is when it was made.
	Created time.Time `json:"created"`
}

// Node is a node as far as guests go.
type Node struct {
	// Name is the node's.
	Name string `json:"name"`
	// Ready is the kubelet's word, Schedulable virt-handler's, that guests can run there.
	Ready       bool `json:"ready"`
	Schedulable bool `json:"schedulable"`
	// Cordoned is whether nothing new is placed there.
	Cordoned bool `json:"cordoned,omitempty"`
	// Machines is how many of the report's machines run there, which are those of its namespace where it has one.
	Machines int `json:"machines"`
	// Heartbeat is when virt-handler was last heard; absent when never.
	Heartbeat *time.Time `json:"heartbeat,omitempty"`
}

// Migration is a move between nodes.
type Migration struct {
	// Namespace, Name and VMI name the migration and what moves.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	VMI       string `json:"vmi"`
	// Phase is the migration's.
	Phase string `json:"phase"`
	// SourceNode and TargetNode are absent until they are known.
	SourceNode string `json:"sourceNode,omitempty"`
	TargetNode string `json:"targetNode,omitempty"`
	// FailureReason is why it failed.
	FailureReason string `json:"failureReason,omitempty"`
}

// DeepCopyObject copies the report.
func (r *Report) DeepCopyObject() runtime.Object {
	out := *r
	out.Machines, out.Nodes, out.Migrations = slices.Clone(r.Machines), slices.Clone(r.Nodes),
		slices.Clone(r.Migrations)
	return &out
}

// Make makes a report of rows.
func Make(
	context, namespace string, machines []*store.Machine, nodes []*store.Node, migrations []*store.Migration,
) *Report {
	r := &Report{
		TypeMeta: metav1.TypeMeta{APIVersion: action.ReportVersion, Kind: Kind}, Context: context, Namespace: namespace,
		Machines: []Machine{}, Nodes: []Node{}, Migrations: []Migration{},
	}
	on := map[string]int{}
	for _, m := range machines {
		if m.Alive() && m.Node != "" {
			on[m.Node]++
		}
		status := m.Status
		if m.Instance {
			status = string(m.Phase) // as the report promises
		}
		r.Machines = append(r.Machines, Machine{
			Namespace: m.Namespace, Name: m.Name, Instance: m.Instance, Status: status, Ready: m.Ready,
			RunStrategy: m.RunStrategy, Node: m.Node, IPs: m.IPs,
			CPUs: m.CPUs, MemoryBytes: m.Memory.Value(), GuestOS: m.GuestOS, Paused: m.Paused, AgentConnected: m.Agent,
			LiveMigratable: m.Migratable,
			Migrating:      m.Migrating, Evacuating: m.Evacuating, Trouble: m.Trouble, Created: m.Created,
		})
	}
	slices.SortFunc(r.Machines, func(a, b Machine) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	for _, n := range nodes {
		node := Node{
			Name: n.Name, Ready: n.Ready, Schedulable: n.Schedulable, Cordoned: n.Cordoned,
			Machines: on[n.Name],
		}
		if !n.Heartbeat.IsZero() {
			node.Heartbeat = &n.Heartbeat
		}
		r.Nodes = append(r.Nodes, node)
	}
	slices.SortFunc(r.Nodes, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	newest := slices.SortedFunc(slices.Values(migrations), func(a, b *store.Migration) int {
		return cmp.Or(b.Created.Compare(a.Created), strings.Compare(a.Key().String(), b.Key().String()))
	})
	for _, m := range newest {
		r.Migrations = append(r.Migrations, Migration{
			Namespace: m.Namespace, Name: m.Name, VMI: m.Machine, Phase: string(m.Phase), SourceNode: m.From,
			TargetNode: m.To, FailureReason: m.Failure,
		})
	}
	return r
}

// Rows returns a report as tables, each with its titles first and an empty row before the next.
func Rows(r *Report) [][]string {
	rows := [][]string{{"NAMESPACE", "NAME", "STATUS", "READY", "NODE", "IP"}}
	for _, m := range r.Machines {
		ip := ""
		if len(m.IPs) > 0 {
			ip = m.IPs[0]
		}
		name := m.Name
		if m.Instance {
			name = "vmi/" + name
		}
		rows = append(rows, []string{
			m.Namespace, name, cmp.Or(m.Status, "<none>"), list.Ready(m.Ready), cmp.Or(m.Node, "<none>"),
			cmp.Or(ip, "<none>"),
		})
	}
	vms := "VMS"
	if r.Namespace != "" {
		vms += " IN " + r.Namespace
	}
	rows = append(rows, nil, []string{"NODE", "STATE", vms})
	for _, n := range r.Nodes {
		rows = append(rows, []string{n.Name, n.line(), strconv.Itoa(n.Machines)})
	}
	if len(r.Migrations) > 0 {
		rows = append(rows, nil, []string{"MIGRATION", "VM", "PHASE", "FROM", "TO"})
		for _, m := range r.Migrations {
			rows = append(rows, []string{
				m.Namespace + "/" + m.Name, m.VMI, m.Phase, cmp.Or(m.SourceNode, "<none>"),
				cmp.Or(m.TargetNode, "<none>"),
			})
		}
	}
	return rows
}

// Changes returns a line for each machine, node and migration that is new, gone, or not as it was in the report before.
// With nil before everything is new.
func Changes(before, now *Report) []string {
	if before == nil {
		before = &Report{}
	}
	var lines []string
	lines = append(lines, changes("VM", before.Machines, now.Machines,
		func(m Machine) string { return m.Namespace + "/" + m.Name }, Machine.line)...)
	lines = append(lines, changes("node", before.Nodes, now.Nodes, func(n Node) string { return n.Name }, Node.line)...)
	lines = append(lines, changes("migration", before.Migrations, now.Migrations,
		func(m Migration) string { return m.Namespace + "/" + m.Name }, Migration.line)...)
	return lines
}

func changes[T any](what string, before, now []T, name, line func(T) string) []string {
	old := map[string]string{}
	for _, o := range before {
		old[name(o)] = line(o)
	}
	var lines []string
	for _, n := range now {
		text := line(n)
		if was, ok := old[name(n)]; !ok || was != text {
			lines = append(lines, fmt.Sprintf("%s %s: %s", what, name(n), text))
		}
		delete(old, name(n))
	}
	for _, o := range before {
		if _, gone := old[name(o)]; gone {
			lines = append(lines, fmt.Sprintf("%s %s: deleted", what, name(o)))
		}
	}
	return lines
}

// line returns in words what matters of a machine.
func (m Machine) line() string {
	words := []string{cmp.Or(m.Status, "created")} // nobody has said yet how it is
	add := func(is bool, text string) {
		if is {
			words = append(words, text)
		}
	}
	add(m.Status == "Running" && !m.Ready, "not ready")
	add(m.Node != "", "on "+m.Node)
	add(len(m.IPs) > 0, "at "+strings.Join(m.IPs, " and "))
	add(m.Migrating, "migrating")
	add(m.Evacuating, "to be evacuated")
	add(m.Trouble != "", m.Trouble)
	return strings.Join(words, ", ")
}

func (n Node) line() string {
	words := []string{"ready"}
	if !n.Ready {
		words[0] = "not ready"
	}
	if n.Cordoned {
		words = append(words, "cordoned")
	}
	if !n.Schedulable {
		words = append(words, "guests cannot run there")
	}
	return strings.Join(words, ", ")
}

func (m Migration) line() string {
	text := m.Phase + ", VM " + m.VMI
	if m.TargetNode != "" {
		text += " from " + m.SourceNode + " to " + m.TargetNode
	}
	if m.FailureReason != "" {
		text += ": " + m.FailureReason
	}
	return text
}

package page

import (
	"fmt"
	"slices"
	"strings"

	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
)

// Summary is how the cluster is, as far as the rows show.
type Summary struct {
	// Nodes is how many nodes there are, Ready how many of them are; 0 where the user may not read them.
	Nodes, Ready int
	// Versions are those of the nodes' kubelets, the oldest first.
	Versions []string
	// Machines counts those that are shown by what their state means: Good, Busy, Warn, Bad and Dim.
	Machines map[theme.Role]int
	// CPU is what the guests use of the nodes' CPUs, cores; Memory what they use of MemoryOf, bytes. CPUs and MemoryOf
	// are 0 where they are not known.
	CPU, CPUs        float64
	Memory, MemoryOf float64
	// Unanswered counts the guests that are missing in CPU and Memory, Unreachable the nodes whose guests are.
	Unanswered, Unreachable int
	// known is whether the machines have been read, measured whether what they use has.
	known, measured bool
}

// Summarize counts what is shown.
func Summarize(w *World) Summary {
	s := Summary{Machines: map[theme.Role]int{}}
	for _, n := range w.Nodes.Rows() {
		s.Nodes++
		if n.Ready {
			s.Ready++
		}
		s.CPUs += n.CPU.AsApproximateFloat64()
		s.MemoryOf += n.Memory.AsApproximateFloat64()
		if n.Kubelet != "" && !slices.Contains(s.Versions, n.Kubelet) {
			s.Versions = append(s.Versions, n.Kubelet)
		}
	}
	slices.Sort(s.Versions)
	s.known = w.Machines.State().Synced
	for _, m := range w.Machines.Rows() {
		s.Machines[statusRole(m)]++
	}
	s.CPU, s.Memory, s.measured = w.Usage.Total()
	s.Unanswered, s.Unreachable = w.Usage.Missing()
	return s
}

// Part is a piece of the summary's line.
type Part struct {
	Text string
	Role theme.Role
}

// Parts returns the pieces of the line, the most important first.
func (s *Summary) Parts(t *theme.Theme) [][]Part {
	var out [][]Part
	if s.Nodes > 0 {
		role := theme.Good
		if s.Ready < s.Nodes {
			role = theme.Bad
		}
		out = append(out, []Part{{"nodes ", theme.Dim}, {fmt.Sprintf("%d/%d ready", s.Ready, s.Nodes), role}})
	}
	if !s.known {
		return append(out, s.versions()...)
	}
	machines := []Part{{"VMs", theme.Dim}}
	for _, role := range []theme.Role{theme.Good, theme.Busy, theme.Warn, theme.Bad, theme.Dim} {
		if n := s.Machines[role]; n > 0 {
			machines = append(machines, Part{fmt.Sprintf(" %s%d", t.State(role), n), role})
		}
	}
	if len(machines) == 1 {
		machines = append(machines, Part{" 0", theme.Dim})
	}
	out = append(out, machines)
	if s.measured {
		cpu, memory := fmt.Sprintf("%.1f", s.CPU), widget.Bytes(s.Memory)
		if s.CPUs > 0 {
			cpu = fmt.Sprintf("%.0f%% of %.0f", s.CPU/s.CPUs*100, s.CPUs)
		}
		if s.MemoryOf > 0 {
			memory += " of " + widget.Bytes(s.MemoryOf)
		}
		use := []Part{{"CPU ", theme.Dim}, {cpu, theme.Text}}
		if without := s.without(); without != "" {
			use = append(use, Part{" without " + without, theme.Warn})
		}
		out = append(out, use,
			[]Part{{"memory ", theme.Dim}, {memory, theme.Text}})
	}
	return append(out, s.versions()...)
}

func (s *Summary) versions() [][]Part {
	if len(s.Versions) == 0 {
		return nil
	}
	return [][]Part{{{"Kubernetes " + widget.Harmless(strings.Join(s.Versions, ", ")), theme.Dim}}}
}

// without returns what the sums leave out: guests that did not answer, and nodes.
func (s *Summary) without() string {
	var out []string
	for _, part := range []struct {
		n    int
		what string
	}{{s.Unanswered, "VM"}, {s.Unreachable, "node"}} {
		switch {
		case part.n == 1:
			out = append(out, "1 "+part.what)
		case part.n > 1:
			out = append(out, fmt.Sprintf("%d %ss", part.n, part.what))
		}
	}
	return strings.Join(out, ", ")
}

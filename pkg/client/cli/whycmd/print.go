package whycmd

import (
	"fmt"
	"strings"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/why"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/printable"
)

var marks = map[why.State]string{
	why.OK: "ok", why.Waiting: "wait", why.Broken: "FAIL", why.Off: "off",
	why.Unknown: "?",
}

// colours are those of marks.
var colours = map[string]cli.Colour{
	"ok": cli.Green, "wait": cli.Yellow, "FAIL": cli.Red, "off": cli.Grey,
	"?": cli.Yellow,
}

func printReport(s *cli.IOStreams, r *why.Report, program string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s/%s: %s\n", r.Metadata.Namespace, r.Metadata.Name, printable.Line(r.Summary))
	if len(r.Chain) > 0 {
		b.WriteString("\n")
		for i, l := range r.Chain {
			fmt.Fprintf(&b, "  %-4s  %s%s: %s\n", marks[l.State], strings.Repeat("  ", depth(r, i)),
				printable.Line(l.Object), printable.Line(l.Message))
		}
	}
	for i, c := range r.Causes {
		fmt.Fprintf(&b, "\n%d. %s (%s)\n", i+1, printable.Line(c.Message), c.Reason)
		printCause(&b, c, program)
	}
	if m := r.Migration; m != nil && !m.Possible && r.Verdict == why.OK {
		fmt.Fprintf(&b, "\nIt cannot move to another node: %s why %s -n %s --migrate\n", program, r.Metadata.Name,
			r.Metadata.Namespace)
	}
	printUnreadable(&b, r)
	return s.PrintMarks(b.String(), colours)
}

// depth returns how far a link is indented: each of a machine's below the one before, the machines of a set beside each
// other.
func depth(r *why.Report, i int) int {
	if r.Chain[0].Layer == why.LayerSet {
		return min(i, 1)
	}
	return i
}

func printMigration(s *cli.IOStreams, r *why.Report, program string) error {
	var b strings.Builder
	m := r.Migration
	switch {
	case m == nil:
		fmt.Fprintf(&b, "%s/%s: there is no guest to move: %s\n", r.Metadata.Namespace, r.Metadata.Name, r.Summary)
	case m.Possible:
		fmt.Fprintf(&b, "%s/%s: nothing keeps it from moving to another node\n", r.Metadata.Namespace, r.Metadata.Name)
	default:
		fmt.Fprintf(&b, "%s/%s: it cannot move to another node\n", r.Metadata.Namespace, r.Metadata.Name)
		for i, c := range m.Obstacles {
			fmt.Fprintf(&b, "\n%d. %s (%s)\n", i+1, printable.Line(c.Message), c.Reason)
			printCause(&b, c, program)
		}
	}
	printUnreadable(&b, r)
	return s.PrintMarks(b.String(), colours)
}

func printConnection(s *cli.IOStreams, r *why.Report, program string) error {
	var b strings.Builder
	c := r.Connection
	fmt.Fprintf(&b, "%s/%s: %s\n", r.Metadata.Namespace, r.Metadata.Name, printable.Line(c.Summary))
	if len(c.Paths) > 0 {
		b.WriteString("\n")
		for _, p := range c.Paths {
			mark := marks[c.Verdict]
			if p.Ports == "none" && c.Verdict == why.OK { // by the other family or network
				mark = marks[why.Broken]
			}
			on := ""
			if p.Network != "" {
				on = " on network " + printable.Line(p.Network)
			}
			fmt.Fprintf(&b, "  %-4s  %-4s  %s to %s%s, %s ports: %s\n", mark, p.Family, p.From, p.To, on, c.Protocol,
				p.Ports)
		}
	}
	for i, cause := range c.Causes {
		fmt.Fprintf(&b, "\n%d. %s (%s)\n", i+1, printable.Line(cause.Message), cause.Reason)
		printCause(&b, cause, program)
	}
	for i, note := range c.Notes {
		if i == 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "note: %s\n", printable.Line(note))
	}
	if c.Verdict == why.OK {
		b.WriteString("\nNot looked at: a firewall in the guest, what listens there, and the network plugin's own " +
			"kinds of policies.\n")
	}
	printUnreadable(&b, r)
	return s.PrintMarks(b.String(), colours)
}

func printCause(b *strings.Builder, c why.Cause, program string) {
	for i, fix := range c.Fixes {
		label := "fix:"
		if i > 0 {
			label = " or:"
		}
		fmt.Fprintf(b, "   %s %s\n", label, printable.Line(action.Advice(program, fix)))
	}
	if c.Evidence != "" && !strings.Contains(c.Evidence, c.Message) && !strings.Contains(c.Message, c.Evidence) {
		fmt.Fprintf(b, "   seen: %s\n", printable.Line(c.Evidence))
	}
}

func printUnreadable(b *strings.Builder, r *why.Report) {
	if len(r.Unreadable) > 0 {
		fmt.Fprintf(b, "\nYou may not read %s: there may be more to it.\n", strings.Join(r.Unreadable, ", "))
	}
}

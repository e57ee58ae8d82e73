package evacuatecmd

import (
	"fmt"
	"strings"

	"github.com/virtkit/virtkit/pkg/client/action/evacuate"
)

// sentence returns what is true of a guest that is to leave a node, as lifecycle.Reached does of a verb.
func sentence(g *evacuate.Guest, node string) string {
	name := "VMI " + g.Namespace + "/" + g.Name
	switch {
	case g.State == evacuate.Left && g.Outcome == evacuate.Restarts:
		return name + " was started anew and runs on " + g.Now
	case g.State == evacuate.Left && len(g.Copied) > 0:
		return name + " has moved and runs on " + g.Now + " " + disks(g)
	case g.State == evacuate.Left:
		return name + " has moved and runs on " + g.Now
	case g.State == evacuate.Moving && g.Outcome == evacuate.Restarts:
		return name + " is stopped, and is to start elsewhere"
	case g.State == evacuate.Moving && g.Target != "" && g.WithDisks:
		return name + " migrates to " + g.Target + " with its disks"
	case g.State == evacuate.Moving && g.Target != "":
		return name + " migrates to " + g.Target
	case g.State == evacuate.Moving:
		return name + " migrates"
	case g.State == evacuate.Stopped:
		return name + " is stopped"
	}
	text := name + " runs on " + node
	switch {
	case g.State == evacuate.Refused:
		text += " and stays there"
	case g.Outcome == evacuate.Marked:
		text += " and is marked to leave"
	case g.State == evacuate.Asked:
		text += " and was asked to leave"
	}
	if g.Reason != "" {
		text += ": " + g.Reason
	}
	return text
}

// summary returns what is true of the node after an evacuation that went well.
func summary(r *evacuate.Report) string {
	text := fmt.Sprintf("node %s is not cordoned", r.Node)
	if r.Cordoned {
		text = fmt.Sprintf("node %s is cordoned", r.Node)
	}
	here := 0
	for i := range r.Guests {
		if state := r.Guests[i].State; state != evacuate.Left && state != evacuate.Stopped {
			here++
		}
	}
	switch {
	case len(r.Guests) == 0:
		return text // and no virtual machine runs on it, as the table says
	case here > 0:
		return text + fmt.Sprintf(", and %d of %d guests have not left it", here, len(r.Guests))
	case len(r.Guests) == 1:
		return text + ", and its guest has left"
	}
	return text + fmt.Sprintf(", and its %d guests have left", len(r.Guests))
}

// disks says that a guest takes its disks along, and which claims it has left behind; empty when it does not.
func disks(g *evacuate.Guest) string {
	if !g.WithDisks {
		return ""
	}
	text := "with its disks"
	if len(g.Copied) == 0 {
		return text
	}
	var left []string
	for _, c := range g.Copied {
		left = append(left, c.From)
	}
	if len(left) == 1 {
		return text + "; claim " + left[0] + " is kept" + unlessDeleted
	}
	return text + "; claims " + strings.Join(left, ", ") + " are kept" + unlessDeleted
}

// unlessDeleted says of which claims that does not hold: docs/volumes.md has the annotation.
const unlessDeleted = ", unless an annotation says Delete"

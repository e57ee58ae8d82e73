package page

import (
	"fmt"
	"strings"

	"github.com/virtkit/virtkit/pkg/client/tui/theme"
)

// claimsLeast is the least height of the claims that is worth drawing.
const claimsLeast = 4

// View draws the fields, what is to be said of them, and the claims. Where there is no room for all of that the claims
// are shown while one is being found, and the fields afterwards.
func (p *Plug) View(width, height int) string {
	t := p.world.Theme
	var fields []string
	for i := range plugFields {
		fields = append(fields, p.draw(t, i, width))
	}
	verdict := p.verdict(width)
	switch least := height - claimsLeast - 1; {
	case plugFields+1+len(verdict) <= least: // there is room for all
	case p.at != plugClaim:
		return joined(p.fit(t, fields, p.at, verdict, nil, width, height))
	default:
		fields = fields[:1]
	}
	lines := p.fit(t, fields, p.at, verdict, nil, width, height)
	if left := height - len(lines) - 1; left > 0 {
		lines = append(append(lines, ""), p.candidates(width, left)...)
	}
	return joined(lines[:min(len(lines), height)])
}

// verdict returns the lines that say what keeps the volume from being plugged in, or what to look at before it is.
func (p *Plug) verdict(width int) []string {
	role, text := theme.Good, "Complete; ^s plugs it in."
	claim := p.claim()
	switch why := p.refusal(); {
	case !p.begun && !p.world.ReadOnly && !p.gone:
		role, text = theme.Dim, "Choose a claim; ^s plugs it in."
	case why != "":
		role, text = theme.Warn, Capital(why)
	case claim == nil && p.claims != nil:
		role = theme.Warn
		text = fmt.Sprintf("There is no claim %s here, unless a DataVolume makes it.", p.value(plugClaim))
	case claim != nil && len(claim.UsedBy) > 0:
		role, text = theme.Warn, "It is used by "+strings.Join(claim.UsedBy, ", ")+"."
	case p.row.Migrating:
		role, text = theme.Warn, "Complete; the machine migrates, and the volume is plugged in when that has ended."
	}
	return paragraph(p.world.Theme, role, text, width)
}

// candidates draws the claims, or why there are none.
func (p *Plug) candidates(width, height int) []string {
	t := p.world.Theme
	said := func(role theme.Role, text string) []string { return paragraph(t, role, text, width) }
	shown, all := p.table.Len()
	switch {
	case p.list.err != nil:
		return said(theme.Bad, "The claims cannot be listed; type the name of one. "+p.world.Say(p.list.err))
	case p.list.at.IsZero():
		return said(theme.Dim, "Reading the claims "+t.Ellipsis)
	case all == 0:
		return said(theme.Text, "There are no PersistentVolumeClaims in namespace "+p.row.Namespace+
			". Make one with kubectl, and come back.")
	case shown == 0:
		return said(theme.Dim, fmt.Sprintf("None of the %d claims matches.", all))
	}
	return strings.Split(p.table.View(width, height), "\n")
}

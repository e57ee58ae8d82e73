package page

import (
	"strings"

	"github.com/charmbracelet/x/ansi"

	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
)

// besideForm is the least width with room for the manifest beside the fields.
const (
	besideForm = 76
	formWidth  = 44
	// formNameWidth is that of a field's title, cells.
	formNameWidth = 16
)

// View draws the fields, and the manifest beside them.
func (p *Form) View(width, height int) string {
	p.height = max(1, height-1)
	switch {
	case p.alone:
		return strings.Join(p.viewManifest(width, height), "\n")
	case width < besideForm:
		return strings.Join(p.viewFields(width, height), "\n")
	}
	left := max(formWidth, width*2/5)
	return strings.Join(beside(p.viewFields(left, height), p.viewManifest(width-left-2, height), left), "\n")
}

func (p *Form) viewFields(width, height int) []string {
	t := p.world.Theme
	var lines []string
	for i := range fields {
		mark, role := "  ", theme.Dim
		if p.complains() && p.wrong.field == i {
			mark, role = t.Paint(theme.Bad, "! "), theme.Bad
		}
		if i == p.at {
			role = theme.Key
		}
		input := &p.inputs[i]
		room := max(8, width-formNameWidth-6)
		input.SetWidth(room)
		input.Placeholder = ansi.Truncate(p.example(i), room, t.Ellipsis)
		lines = append(lines, mark+t.Paint(role, widget.Pad(t, draftFields[i].title, formNameWidth))+" "+input.View())
	}
	verdict := p.viewVerdict(width)
	if fields+2+len(verdict) <= height { // the fields begin where the manifest does
		return append([]string{""}, p.fitting.fit(t, lines, p.at, verdict, nil, width, height-1)...)
	}
	return p.fitting.fit(t, lines, p.at, verdict, nil, width, height)
}

// example returns what a field shows while it is empty.
func (p *Form) example(field int) string {
	if (field == fieldCPUs || field == fieldMemory) && p.draft()[fieldInstancetype] != "" {
		return "the instance type's"
	}
	return draftFields[field].example
}

func (p *Form) leaveAll() {
	for i := range p.left {
		p.left[i] = true
	}
}

// complains reports whether there is a mistake to show: one in a field that was left, or of the whole.
func (p *Form) complains() bool {
	return p.begun && p.wrong != nil && (p.wrong.field < 0 || p.left[p.wrong.field])
}

// booted reports whether the fields that name a disk to boot from were all left.
func (p *Form) booted() bool { return p.left[fieldImage] && p.left[fieldClaim] && p.left[fieldImport] }

// viewVerdict returns the lines that say what keeps the machine from being created, and what is suggested.
func (p *Form) viewVerdict(width int) []string {
	t := p.world.Theme
	var lines []string
	switch {
	case p.failed != nil:
		for _, l := range wrap(widget.Harmless(p.world.Say(p.failed)), width-4) {
			lines = append(lines, "  "+t.Paint(theme.Bad, l))
		}
	case !p.begun, p.wrong != nil && !p.complains(), p.diskless && p.unknown == "" && !p.booted():
		lines = append(lines, "  "+t.Paint(theme.Dim, "A name and a disk are enough; tab completes, ^s creates."))
	case p.wrong != nil:
		for _, l := range wrap(widget.Harmless(p.refusal()), width-4) {
			lines = append(lines, "  "+t.Paint(theme.Warn, l))
		}
	case p.diskless && p.unknown == "":
		text := "It has no disk to boot from; what stands in the fields is an example."
		if p.warned {
			text += " ^s again creates it all the same."
		}
		for _, l := range wrap(text, width-4) {
			lines = append(lines, "  "+t.Paint(theme.Warn, l))
		}
	case p.unknown != "":
		for _, l := range wrap(widget.Harmless(p.unknown), width-4) {
			lines = append(lines, "  "+t.Paint(theme.Warn, l))
		}
	default:
		lines = append(lines, "  "+t.Paint(theme.Good, "Complete."))
	}
	if p.suggests() {
		matches := p.inputs[p.at].MatchedSuggestions()
		lines = append(lines, "  "+
			t.Paint(theme.Dim,
				widget.Pad(t, "tab: "+widget.Harmless(strings.Join(matches[:min(len(matches), 5)], "  ")), width-4)))
	}
	return lines
}

func (p *Form) viewManifest(width, height int) []string {
	t := p.world.Theme
	p.offset = max(0, min(p.offset, len(p.manifest)-height+1))
	lines := []string{t.Paint(theme.Title, "Manifest")}
	for _, l := range p.manifest[p.offset:min(len(p.manifest), p.offset+height-1)] {
		lines = append(lines, widget.Pad(t, widget.Harmless(l), width))
	}
	return lines
}

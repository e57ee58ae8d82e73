package page

import (
	"context"
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
)

const (
	exportKey  = "x"
	exportName = "export"
	exportHelp = "write the VM with its disks into one file"
)

// Exports is the resource that an export makes.
const Exports = "virtualmachineexports"

// Export is what is written to which file of this machine.
type Export struct {
	// Snapshot is whether Key is a snapshot's, and not a VM's.
	Snapshot bool
	Key      store.Key
	// UID is of the object that is meant, so that another of its name is not taken for it; empty for any.
	UID  types.UID
	File string
}

// exporting is what the page that exports knows.
type exporting struct {
	*Request
	export  Export
	machine string // of the snapshot, or the VM's own name
	refused func() string
	alive   func() bool
}

// NewExport makes the page that exports a VM.
func NewExport(w *World, m *store.Machine) *Request {
	key := m.Key()
	return newExport(w, Export{Key: key, UID: m.ObjectUID}, key.Name, func() string {
		now := w.Machines.Get(key)
		if now == nil {
			return "the VM has been deleted"
		}
		return exportRefusal(w, now)
	}, func() bool {
		now := w.Machines.Get(key)
		return now != nil && now.Alive()
	})
}

// newSavedExport makes the page that exports a snapshot.
func newSavedExport(w *World, s *store.Snapshot) *Request {
	return newExport(w, Export{Key: s.Object(), UID: s.UID, Snapshot: true}, s.Machine, func() string {
		return saved{world: w, rows: []*store.Snapshot{latest(w, s)}}.ready(Exports)
	}, func() bool { return false })
}

func newExport(w *World, e Export, machine string, refused func() string, alive func() bool) *Request {
	p := &exporting{export: e, machine: machine, refused: refused, alive: alive}
	p.Request = newRequest(w, "export of "+p.named(), "exports it", []formField{
		{title: "File", example: "on this machine"},
	})
	p.inputs[0].CharLimit = 4096
	p.inputs[0].SetValue(widget.Harmless(e.Key.Name) + ".tar")
	p.inputs[0].CursorEnd()
	p.refuse, p.describe, p.ask = p.refusal, p.says, p.asks
	return p.Request
}

// named returns what is exported.
func (p *exporting) named() string {
	if p.export.Snapshot {
		return "snapshot " + p.export.Key.String()
	}
	return "VM " + p.export.Key.String()
}

// exportRefusal returns why a machine cannot be exported, empty when it can.
func exportRefusal(w *World, m *store.Machine) string {
	switch {
	case w.ReadOnly:
		return ReadOnly
	case m.Instance:
		return "it has no VirtualMachine, and only that can be exported"
	case m.Deleting:
		return "it is being deleted"
	}
	return w.Actions.ForbiddenTo(m.Namespace, "create", Exports)
}

// asked returns the export as the form asks for it.
func (p *exporting) asked() Export {
	e := p.export
	e.File = p.value(0)
	return e
}

func (p *exporting) refusal() string {
	if why := p.refused(); why != "" {
		return why
	}
	_, _, err := p.world.Actions.ExportFile(p.asked())
	if err != nil {
		return "file: " + err.Error()
	}
	return ""
}

func (p *exporting) says() []widget.Line {
	lines := []widget.Line{{
		Text: fmt.Sprintf("VM %s and its disks on claims are written into one file, of which `%s import` makes a VM "+
			"on any cluster. Container disks, Secrets and ConfigMaps are not in it.", p.machine, p.world.Program),
		Role: theme.Text,
	}, {Text: Capital(p.meanwhile()) + ".", Role: theme.Text}}
	if path, there, err := p.world.Actions.ExportFile(p.asked()); err == nil {
		text := "The file is " + path + "."
		if there {
			text = "The file " + path + " is there, and is replaced."
		}
		lines = append(lines, widget.Line{Text: text, Role: theme.Text})
	}
	return append(lines, widget.Line{
		Text: "It goes on while you look at other pages; :transfers shows and cancels it.", Role: theme.Dim,
	})
}

// meanwhile returns what the export does to the guest.
func (p *exporting) meanwhile() string {
	switch {
	case p.export.Snapshot:
		return "the VM may run meanwhile"
	case p.alive():
		return "its guest runs: a snapshot is made for the export, and deleted after it"
	}
	return "the VM is stopped, and must not be started meanwhile"
}

func (p *exporting) asks() tea.Cmd {
	e, actions := p.asked(), p.world.Actions
	path, there, err := actions.ExportFile(e)
	if err != nil {
		return Send(Notice{Text: Capital(err.Error())})
	}
	if strings.HasPrefix(e.File, "~") {
		e.File = path // a shell does not expand what is quoted
	}
	question := fmt.Sprintf("Export %s to %s? %s.", p.named(), path, Capital(p.meanwhile()))
	if there {
		question += " The file is there, and is replaced."
	}
	of := quoted(e.Key.Name)
	if e.Snapshot {
		of = "snapshot/" + of
	}
	t := &Transfer{
		What: "export of " + p.named(), To: path,
		Loses: "What is written so far is removed, and so is what was made for it in the cluster.",
	}
	task := p.world.Transfers.Task(t,
		p.world.Line(p.world.Program, "export", of, quoted(e.File), "--namespace", e.Key.Namespace),
		func(ctx context.Context, t *Transfer) error { return actions.Export(ctx, e, t) })
	task.Began = Replace{Old: p.Request, Page: NewTransferList(p.world)}
	return Send(Ask{Question: question, Task: task})
}

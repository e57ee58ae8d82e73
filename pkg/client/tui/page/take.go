package page

import (
	"context"
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action/snapshot"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// takeName is the key that takes a snapshot, in a word, and takeHelp in a sentence.
const (
	takeName = "snapshot"
	takeHelp = "take a snapshot of the VM"
)

// The fields of the form, in their order.
const (
	takeSnapshot = iota
	takeDeadline
	takePolicy
	takePartial
	takeMemory
)

var takeForm = []formField{
	takeSnapshot: {title: "Name", example: "of the snapshot"},
	takeDeadline: {title: "Fails after", flag: "failure-deadline", example: "5m"},
	takePolicy: {title: "If deleted", flag: "deletion-policy", options: []option{
		{"", "its volumes go with it"},
		{string(snapshotv1beta1.VirtualMachineSnapshotContentRetain), "they stay"},
	}},
	takePartial: {title: "Volumes", flag: "partial", boolean: true, options: []option{
		{"", "all or nothing"}, {"partial", "those that can be"},
	}},
	takeMemory: {title: "Memory", flag: "memory", boolean: true, options: []option{
		{"", "not in it"}, {"memory", "the guest's, too"},
	}},
}

// take is what the page that takes a snapshot knows.
type take struct {
	*Request
	machine *store.Machine // the row when the page was opened
	vm      *v1.VirtualMachine
	vmi     *v1.VirtualMachineInstance // nil for none
	read    reading[string]
}

// takeRead is what was read of the VM.
type takeRead struct {
	of      *take
	details *Details
	err     error
}

// NewTake makes the page that takes a snapshot of a machine.
func NewTake(w *World, m *store.Machine) *Request {
	followSnapshots(w)
	p := &take{Request: newRequest(w, "take snapshot of "+m.Key().String(), "takes the snapshot", takeForm), machine: m}
	p.inputs[takeSnapshot].SetValue(widget.Harmless(m.Name) + "-" + w.Now().UTC().Format("20060102-150405"))
	p.inputs[takeSnapshot].CursorEnd()
	p.refuse, p.describe, p.ask, p.want, p.hear = p.refusal, p.says, p.asks, p.reads, p.heard
	return p.Request
}

// takeRefusal returns why no snapshot of a machine can be taken, empty when one can.
func takeRefusal(w *World, m *store.Machine) string {
	switch {
	case w.ReadOnly:
		return ReadOnly
	case m.Instance:
		return "it has no VirtualMachine, and only that can be snapshotted"
	case m.Deleting:
		return "it is being deleted"
	}
	return w.Actions.ForbiddenTo(m.Namespace, "create", store.Snapshots)
}

// row returns the machine as it is now; nil when it is gone.
func (p *take) row() *store.Machine { return p.world.Machines.Get(p.machine.Key()) }

// reads reads the VM, and again when it has changed.
func (p *take) reads() tea.Cmd {
	return readVM(p.world, p.row(), &p.read,
		func(details *Details, err error) tea.Msg { return takeRead{p, details, err} })
}

func (p *take) heard(msg tea.Msg) {
	if m, ok := msg.(takeRead); ok && m.of == p {
		if p.read.done(m.err, p.world.Now()); m.err == nil {
			p.vm, p.vmi = m.details.VM, m.details.VMI
		}
	}
}

// volumes returns the volumes of the VM that a snapshot has, and those that it cannot have.
func (p *take) volumes() (in []string, out []snapshots.Omitted) {
	if p.vm == nil {
		return nil, nil
	}
	for _, s := range p.vm.Status.VolumeSnapshotStatuses {
		if s.Enabled {
			in = append(in, s.Name)
		}
	}
	return in, snapshots.LeftOut(p.vm)
}

func (p *take) refusal() string {
	m := p.row()
	if m == nil {
		if p.world.Machines.State().Synced {
			return "the VM has been deleted"
		}
		m = p.machine
	}
	if why := takeRefusal(p.world, m); why != "" {
		return why
	}
	if wrong := misnamed(p.value(takeSnapshot)); wrong != "" {
		return wrong
	}
	if text := p.value(takeDeadline); text != "" {
		if d, err := time.ParseDuration(text); err != nil || d <= 0 {
			return fmt.Sprintf("fails after: %q is no time, such as 90s or 5m", text)
		}
	}
	_, out := p.volumes()
	switch {
	case p.vm == nil && p.read.err != nil:
		return "the VM cannot be read: " + p.world.Say(p.read.err)
	case p.vm == nil:
		return "the VM is being read"
	case len(snapshots.Unbound(p.vm)) > 0:
		return "volumes: " + namesOf(snapshots.Unbound(p.vm)) + " cannot be snapshotted before the VM was started"
	case len(out) > 0 && p.chosen[takePartial] == "":
		return "volumes: " + namesOf(out) + " cannot be snapshotted; choose those that can be"
	}
	if p.memory() {
		if trouble := snapshot.MemoryTrouble(p.vm, p.vmi); trouble != "" {
			return "memory: " + trouble
		}
	}
	return ""
}

// memory reports that the snapshot is to have the guest's memory.
func (p *take) memory() bool { return p.chosen[takeMemory] != "" }

// misnamed returns what is wrong with a name; "" when nothing is.
func misnamed(name string) string {
	if name == "" {
		return "name: give one"
	}
	if wrong := validation.IsDNS1123Subdomain(name); len(wrong) > 0 {
		return fmt.Sprintf("name: %q is no name; use small letters, digits, - and .", name)
	}
	return ""
}

func namesOf(volumes []snapshots.Omitted) string {
	var names []string
	for _, v := range volumes {
		names = append(names, v.Name)
	}
	return strings.Join(names, ", ")
}

// says what the snapshot would have, and what becomes of the guest meanwhile.
func (p *take) says() []widget.Line {
	var lines []widget.Line
	if noSnapshotKinds(p.world) {
		lines = append(lines, widget.Line{Text: noCSI, Role: theme.Warn})
	}
	if p.vm == nil {
		return lines
	}
	in, out := p.volumes()
	text := "It has the VM's spec"
	if len(in) > 0 {
		text += " and its volumes " + strings.Join(in, ", ")
	}
	if p.memory() {
		text += ", and the memory of its guest, which a restore over the VM resumes"
	}
	lines = append(lines, widget.Line{Text: text + ".", Role: theme.Text})
	for _, v := range out {
		lines = append(lines, widget.Line{Text: fmt.Sprintf("Not in it: %s (%s).", v.Name, v.Reason), Role: theme.Warn})
	}
	if anew := snapshot.Anew(p.vm); len(anew) > 0 {
		text := fmt.Sprintf("Not in it: %s. %s.", strings.Join(anew, ", "), Capital(noClaims(len(anew))))
		lines = append(lines, widget.Line{Text: text, Role: theme.Text})
	}
	return append(lines, widget.Line{Text: Capital(p.meanwhile()) + ".", Role: theme.Text})
}

// noClaims returns why no snapshot has n volumes that are no claims, and what becomes of them.
func noClaims(n int) string {
	if n == 1 {
		return "it is no claim, and is made anew of the spec"
	}
	return "they are no claims, and are made anew of the spec"
}

// excluded returns the volumes that a snapshot does not have: those with data, and those that are made anew of the
// spec.
func excluded(s *store.Snapshot) (data, anew []string) {
	partial := ""
	for _, i := range s.Indications {
		if i[0] == string(snapshots.PartialSnapshot) {
			partial = i[1]
		}
	}
	for _, name := range s.Excluded {
		if strings.Contains(partial, " "+name+" (") { // as snapshots.Reasons writes it
			data = append(data, name)
		} else {
			anew = append(anew, name)
		}
	}
	return data, anew
}

// meanwhile returns what becomes of the guest while the volumes are snapshotted.
func (p *take) meanwhile() string {
	m := p.row()
	switch {
	case m == nil || !m.Alive():
		return "the VM does not run"
	case p.memory():
		return "its guest is paused while its memory is written"
	case m.Agent:
		return "its guest runs, and its agent freezes the file systems, or else it is paused"
	}
	return "its guest runs, and has no agent: it is paused for the moment"
}

func (p *take) asks() tea.Cmd {
	key, machine, actions := p.machine.Key(), target(p.machine), p.world.Actions
	o := snapshot.Options{Policy: snapshotv1beta1.DeletionPolicy(p.chosen[takePolicy]), Memory: p.memory()}
	if d, err := time.ParseDuration(p.value(takeDeadline)); err == nil {
		o.Deadline = &metav1.Duration{Duration: d}
	}
	name := p.value(takeSnapshot)
	in, out := p.volumes()
	question := fmt.Sprintf("Take snapshot %s of VM %s", name, key)
	if len(in) > 0 {
		question += " with its volumes " + strings.Join(in, ", ")
	}
	if o.Memory {
		question += ", with its guest's memory"
	}
	if question += "?"; len(out) > 0 {
		question += " Without " + namesOf(out) + "."
	}
	question += " " + Capital(p.meanwhile()) + "."
	if o.Policy == snapshotv1beta1.VirtualMachineSnapshotContentRetain {
		question += " If it is deleted, its volumes stay."
	}
	words := []string{p.world.Program, "snapshot create", quoted(key.Name), quoted(name)}
	words = append(words, p.words(takeDeadline)...)
	return Send(Ask{Question: question, Task: Task{
		Line: p.world.Line(append(words, "--namespace", key.Namespace)...),
		Do:   func(ctx context.Context) error { return actions.TakeSnapshot(ctx, machine, name, o) },
		Then: p.shows(func() (resource, made string) { return store.Snapshots, name }, key.Namespace),
	}})
}

// shows goes to the page of what was made, or stays where it was not.
func (p *Request) shows(made func() (resource, name string), namespace string) func(error) tea.Msg {
	return func(err error) tea.Msg {
		if err != nil { // it is shown, and the form stays
			return nil
		}
		resource, name := made()
		return Replace{Old: p, Page: NewSnapshot(p.world, store.Key{Namespace: resource + "/" + namespace, Name: name})}
	}
}

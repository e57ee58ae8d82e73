package page

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action/snapshot"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
)

// The fields of the form, in their order.
const (
	restoreTarget = iota
	restoreStop
	restoreClaims
	restoreOwner
	restoreKeep
)

func restoreForm() []formField {
	return []formField{
		restoreTarget: {title: "VM", flag: "target", example: "the snapshot's"},
		restoreStop: {title: "If it runs", flag: "stop", boolean: true, options: []option{
			{"", "do nothing"}, {"stop", "stop it first"},
		}},
		restoreClaims: {
			title: "Claims", flag: "volume-restore-policy", options: defaulted(snapshot.VolumePolicies()),
		},
		restoreOwner: {title: "They stay", flag: "volume-ownership-policy", options: []option{
			{"", "with the VM (a new VM's: as its source's)"},
			{string(snapshotv1beta1.VolumeOwnershipPolicyNone), "for good"},
		}},
		restoreKeep: {title: "The old ones", flag: "keep", boolean: true, options: []option{
			{"", "stay, but for those of DataVolumes"}, {"keep", "all stay, and undo gives them back"},
		}},
	}
}

// restoring is what the page that restores a snapshot knows.
type restoring struct {
	*Request
	row  *store.Snapshot
	plan *snapshot.Plan
	of   string // the target of the plan
	read reading[string]
}

// planRead is a plan of a restore to a target.
type planRead struct {
	of     *restoring
	target string
	plan   *snapshot.Plan
	err    error
}

// NewRestore makes the page that restores a snapshot.
func NewRestore(w *World, s *store.Snapshot) *Request {
	followSnapshots(w)
	p := &restoring{row: s}
	p.Request = newRequest(w, "restore "+s.Object().String(), "restores the snapshot", restoreForm())
	p.inputs[restoreTarget].SetValue(widget.Harmless(s.Machine))
	p.inputs[restoreTarget].CursorEnd()
	p.refuse, p.describe, p.ask, p.want, p.hear = p.refusal, p.says, p.asks, p.reads, p.heard
	return p.Request
}

func (p *restoring) target() string { return cmp.Or(p.value(restoreTarget), p.row.Machine) }

// reads makes the plan anew when the target is another, or has changed.
func (p *restoring) reads() tea.Cmd {
	target, revision := p.target(), ""
	if m := p.world.Machines.Get(store.Key{Namespace: p.row.Namespace, Name: target}); m != nil {
		revision = m.Revision
	}
	if misnamed(target) != "" || !p.read.wanted(revision+" of "+target, p.world.Now()) {
		return nil
	}
	actions, key := p.world.Actions, p.row.Object()
	return limited(func(ctx context.Context) tea.Msg {
		plan, err := actions.RestorePlan(ctx, key, target)
		return planRead{p, target, plan, err}
	})
}

func (p *restoring) heard(msg tea.Msg) {
	if m, ok := msg.(planRead); ok && m.of == p {
		p.read.done(m.err, p.world.Now())
		p.plan, p.of = m.plan, m.target
	}
}

// current returns the plan for the target that is asked for; nil where it is not there yet.
func (p *restoring) current() *snapshot.Plan {
	if p.of != p.target() || p.read.err != nil {
		return nil
	}
	return p.plan
}

func (p *restoring) refusal() string {
	p.row = latest(p.world, p.row)
	s := saved{world: p.world, rows: []*store.Snapshot{p.row}}
	if why := s.ready(store.Restores); why != "" {
		return why
	}
	if wrong := misnamed(p.target()); wrong != "" {
		return wrong
	}
	switch plan := p.current(); {
	case p.of == p.target() && p.read.err != nil:
		return "what it would replace is not known: " + p.world.Say(p.read.err)
	case plan == nil:
		return "what it would replace is being read"
	case plan.Runs && p.chosen[restoreStop] == "":
		return "VM " + plan.Target + " runs, and is restored only when it is stopped; choose to stop it first, or " +
			"another name"
	case p.inPlace() && plan.InPlace != nil && plan.InPlace.Trouble != "":
		return plan.InPlace.Trouble
	case p.chosen[restoreKeep] != "" && !plan.Exists:
		return "VM " + plan.Target + " is not there yet, so that nothing is replaced that could be kept"
	case p.chosen[restoreKeep] != "" && p.inPlace():
		return "InPlace gives the names of the old claims to the new ones, so that the old ones cannot be kept"
	}
	return ""
}

// inPlace reports whether the new claims replace the old ones under their names.
func (p *restoring) inPlace() bool {
	return p.chosen[restoreClaims] == string(snapshotv1beta1.VolumeRestorePolicyInPlace)
}

// replaces returns what becomes of the VM.
func (p *restoring) replaces(plan *snapshot.Plan) string {
	key := p.row.Namespace + "/" + plan.Target
	when := p.row.Taken
	if when.IsZero() {
		when = p.row.Created
	}
	of := "of " + age(when, p.world.Now()) + " ago"
	switch {
	case plan.Exists && len(plan.Volumes) > 0:
		return fmt.Sprintf("VM %s is replaced: its spec and its volumes %s are those %s", key,
			plan.InClaims(), of)
	case plan.Exists:
		return fmt.Sprintf("VM %s is replaced: its spec is that %s", key, of)
	case len(plan.Volumes) > 0:
		return fmt.Sprintf("VM %s is made, as it was %s ago, with volumes %s", key,
			age(when, p.world.Now()), strings.Join(plan.Volumes, ", "))
	}
	return fmt.Sprintf("VM %s is made, as it was %s ago", key, age(when, p.world.Now()))
}

// says what would be replaced, and what would be lost by it.
func (p *restoring) says() []widget.Line {
	plan := p.current()
	if plan == nil {
		return nil
	}
	var lines []widget.Line
	add := func(role theme.Role, format string, args ...any) {
		lines = append(lines, widget.Line{Text: fmt.Sprintf(format, args...), Role: role})
	}
	add(theme.Text, "%s.", p.replaces(plan))
	switch kept := p.chosen[restoreKeep] != ""; {
	case plan.Exists && kept:
		add(theme.Text, "What was written since is lost to the VM until `%s undo` gives it back.", p.world.Program)
	case plan.Exists:
		add(theme.Warn, "What was written since is lost to the VM.")
	}
	switch {
	case plan.Runs && p.chosen[restoreStop] != "":
		add(theme.Warn, "Its guest is stopped first, and %s", staysOff)
	case plan.Runs:
		add(theme.Warn, "Its guest runs.")
	}
	if plan.Resumes {
		add(theme.Text, "The snapshot has the guest's memory. "+resumes)
	}
	if len(plan.Loses) > 0 {
		add(theme.Warn, "The snapshot does not have its volumes %s.", strings.Join(plan.Loses, ", "))
	}
	data, anew := excluded(p.row)
	if len(data) > 0 {
		add(theme.Warn, "Left out when it was taken: %s.", strings.Join(data, ", "))
	}
	if len(anew) > 0 {
		add(theme.Text, "Not in the snapshot: %s; %s.", strings.Join(anew, ", "), noClaims(len(anew)))
	}
	switch {
	case len(plan.Volumes) == 0:
	case p.chosen[restoreClaims] == "":
		add(theme.Dim, "Its claims get new names.")
	case p.inPlace():
		if says := plan.InPlace.Says(plan.Target); says != "" {
			add(theme.Warn, "%s", says)
		} else {
			add(theme.Dim, "Its claims have the names that they had in the snapshot.")
		}
	default:
		add(theme.Dim, "Its claims are named %s-VOLUME.", plan.Target)
	}
	if !plan.Exists && plan.Target != p.row.Machine {
		add(theme.Dim, "It has the MAC addresses and the firmware UUID of VM %s; D on the snapshot makes a clone with "+
			"its own.", p.row.Machine)
	}
	return lines
}

// resumes says of a VM what becomes of its guest.
const resumes = "When it is started, its guest resumes where it was when the snapshot was taken."

// staysOff says of a VM that is stopped for its restore what follows.
const staysOff = "the VM stays off until it is started."

func (p *restoring) asks() tea.Cmd {
	key, actions, plan := p.row.Object(), p.world.Actions, p.current()
	o := snapshot.RestoreOptions{
		Target: plan.Target, Stop: p.chosen[restoreStop] != "", Keep: p.chosen[restoreKeep] != "",
		VolumePolicy: p.chosen[restoreClaims], Ownership: p.chosen[restoreOwner], SnapshotUID: p.row.UID,
	}
	ask := Ask{Question: fmt.Sprintf("Restore snapshot %s? %s.", key, p.replaces(plan))}
	if plan.Exists {
		ask.Typed = plan.Target
		if o.Keep {
			ask.Question += " What it has now is kept, and undo gives it back."
		} else {
			ask.Question += " What was written since is lost."
		}
	}
	if says := plan.InPlace.Says(plan.Target); p.inPlace() && says != "" {
		ask.Question += " " + says
	}
	if plan.Runs {
		ask.Question += " Its guest is stopped first, and " + staysOff
	}
	if plan.Resumes {
		ask.Question += " " + resumes
	}
	if len(plan.Loses) > 0 {
		ask.Question += " The snapshot does not have its volumes " + strings.Join(plan.Loses, ", ") + "."
	}
	words := []string{p.world.Program, "snapshot restore", quoted(key.Name)}
	if plan.Target != p.row.Machine {
		words = append(words, "--target", quoted(plan.Target))
	}
	words = append(words, p.words(restoreStop)...)
	made := ""
	ask.Task = Task{
		Line: p.world.Line(append(words, "--yes", "--namespace", key.Namespace)...),
		Do: func(ctx context.Context) (err error) {
			made, err = actions.Restore(ctx, key, o)
			return err
		},
		Then: p.shows(func() (string, string) { return store.Restores, made }, key.Namespace),
	}
	return Send(ask)
}

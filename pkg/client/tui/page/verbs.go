package page

import (
	"context"
	"fmt"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/keymap"
)

// subject is what a key of machines works on: the marked ones, or the one that is shown.
type subject struct {
	world    *World
	machines []*store.Machine
	// hidden is how many more are marked, which a filter hides.
	hidden int
}

// ReadOnly is why nothing can be changed, a clause.
const ReadOnly = "the dashboard was started with --read-only"

// manyTyped is how many machines a bulk action may have before the number is to be typed.
const manyTyped = 20

// oneMachine allows what is for one machine at a time, unless allowed, which may be nil, says why not.
func oneMachine(allowed func(m *store.Machine) string) func(subject) string {
	return func(s subject) string {
		switch len(s.machines) {
		case 0:
			return "there is no machine here"
		case 1:
			if allowed != nil {
				return allowed(s.machines[0])
			}
			return ""
		}
		return "this is for one machine at a time"
	}
}

func alive(m *store.Machine) string {
	if !m.Alive() {
		return "it is not running"
	}
	return ""
}

// toConsole returns the subresource of a guest's console, which the user must be allowed to get.
func toConsole(*store.Machine) string { return client.VMIs + "/console" }
func toScreen(*store.Machine) string  { return client.VMIs + "/vnc" }
func toPort(m *store.Machine) string  { return resourceOf(m) + "/portforward" }

// reaching allows what leads into a running guest by a subresource.
func reaching(by func(*store.Machine) string) func(subject) string {
	return func(s subject) string {
		return oneMachine(func(m *store.Machine) string {
			if why := s.world.Actions.ForbiddenTo(m.Namespace, "get", by(m)); why != "" {
				return why
			}
			return alive(m)
		})(s)
	}
}

// typing allows what sends keys to a guest by a subresource.
func typing(by func(*store.Machine) string) func(subject) string {
	return func(s subject) string {
		if s.world.ReadOnly {
			return ReadOnly
		}
		return reaching(by)(s)
	}
}

// plugging allows a verb that changes which volumes a machine has.
func plugging(verb string) func(subject) string {
	return func(s subject) string {
		if s.world.ReadOnly {
			return ReadOnly
		}
		if why := oneMachine(nil)(s); why != "" {
			return why
		}
		switch m := s.machines[0]; {
		case m.Deleting:
			return "it is being deleted"
		case m.Instance && !m.Alive():
			return "it is not running"
		default:
			return s.world.Actions.ForbiddenTo(m.Namespace, "update", resourceOf(m)+"/"+verb)
		}
	}
}

// run does a verb of virtctl's in the terminal.
func run(args ...string) func(subject) tea.Cmd {
	return func(s subject) tea.Cmd { return Send(Run{Args: s.args(args...)}) }
}

// until returns what run returns, for a command that goes on until the user ends it, and does not say how.
func until(args ...string) func(subject) tea.Cmd {
	return func(s subject) tea.Cmd {
		return Send(Run{Args: s.args(args...), Leave: "Ctrl-C goes back to the dashboard."})
	}
}

// bind binds keys to a lifecycle verb, for all machines that are marked.
func bind(v lifecycle.Verb, help string, quiet bool, keys ...string) keymap.Binding[subject] {
	return keymap.Binding[subject]{
		Keys: keys, Name: string(v), Help: help, Quiet: quiet,
		Allowed: func(s subject) string { return s.allowed(v) }, Do: func(s subject) tea.Cmd { return s.ask(v) },
	}
}

// MachineKey returns the footer's name for the action of a key on machines; empty for a key that does nothing to them,
// or the same on the pages of most other objects.
func MachineKey(key string) string {
	if key == "y" {
		return ""
	}
	for _, b := range machineBindings() {
		if slices.Contains(b.Keys, key) {
			return b.Name
		}
	}
	return ""
}

// named returns how messages call a machine.
func named(m *store.Machine) string {
	if m.Instance {
		return "VMI " + m.Key().String()
	}
	return "VM " + m.Key().String()
}

// pausing returns the verb of the pause key: unpause when something is paused and there is nothing to pause, else
// pause.
func (s subject) pausing() lifecycle.Verb {
	verb := lifecycle.Pause
	for _, m := range s.machines {
		if applies(lifecycle.Pause, m, nil) == "" {
			return lifecycle.Pause
		}
		if m.Paused {
			verb = lifecycle.Unpause
		}
	}
	return verb
}

// args returns a command line for the first machine, without the program's name.
func (s subject) args(command ...string) []string {
	m := s.machines[0]
	name := m.Name
	if m.Instance {
		name = "vmi/" + name
	}
	return append(append(append([]string{}, command...), name, "--namespace", m.Namespace), s.world.Flags...)
}

// line returns a command line as the user would type it.
func (s subject) line(verb lifecycle.Verb, machines []*store.Machine) string {
	words := []string{s.world.Program, string(verb)}
	for _, m := range machines {
		if m.Instance {
			words = append(words, "vmi/"+m.Name)
		} else {
			words = append(words, m.Name)
		}
	}
	return s.world.Line(append(words, "--namespace", machines[0].Namespace)...)
}

// allowed returns why a verb does nothing to any of the machines, empty when it does.
func (s subject) allowed(verb lifecycle.Verb) string {
	if s.world.ReadOnly {
		return ReadOnly
	}
	why := "there is no machine here"
	moves := s.moves(verb)
	for _, m := range s.machines {
		if why = s.refusal(verb, m, moves[m.Key()]); why == "" {
			return ""
		}
	}
	return why
}

// moves returns the migrations that have not ended, by machine, for a verb that depends on them.
func (s subject) moves(verb lifecycle.Verb) map[store.Key]*store.Migration {
	if verb != lifecycle.Migrate && verb != lifecycle.MigrateCancel {
		return nil
	}
	return s.world.moves()
}

// refusal returns why a verb does nothing to a machine, whose migration that has not ended is move; nil without one.
func (s subject) refusal(verb lifecycle.Verb, m *store.Machine, move *store.Migration) string {
	if why := s.forbidden(verb, m); why != "" {
		return why
	}
	if why := applies(verb, m, move); why != "" || verb != lifecycle.MigrateCancel || !m.CopiesDisks ||
		move != nil && move.WithDisks {
		return why
	}
	return (&lifecycle.CopyingError{
		Command: s.world.Line(s.world.Program, "volume", "migrate", m.Name, "--cancel", "--namespace", m.Namespace),
	}).Error()
}

// forbidden returns what right the user lacks for a verb of a machine, empty when none.
func (s subject) forbidden(verb lifecycle.Verb, m *store.Machine) string {
	if withDisks(verb, m) {
		return s.world.Actions.ForbiddenTo(m.Namespace, "create", client.Migrations)
	}
	return s.world.Actions.Forbidden(m.Namespace, verb)
}

// withDisks reports a migration that brings the machine's disks, since it cannot move without them.
func withDisks(verb lifecycle.Verb, m *store.Machine) bool {
	return verb == lifecycle.Migrate && m.OnlyWithDisks
}

// applies returns why a verb does nothing to a machine, as far as its row and that of its migration, which may be nil,
// show; empty when it applies.
func applies(verb lifecycle.Verb, m *store.Machine, move *store.Migration) string {
	running := m.Phase == "Running"
	switch {
	case verb == lifecycle.Delete:
		if m.Deleting {
			return "it is being deleted"
		}
		return ""
	case m.Instance && !verb.TakesInstance():
		return "it has no VirtualMachine"
	case m.Deleting:
		return "it is being deleted"
	case verb == lifecycle.Start:
		switch {
		case m.Alive() && m.Paused:
			return "it is paused; p lets it go on"
		case m.Alive():
			return "it is running"
		}
		return ""
	case verb == lifecycle.Stop || verb == lifecycle.Restart:
		if !m.Alive() && (verb == lifecycle.Restart || m.RunStrategy != "Always") {
			return "it is not running"
		}
		return ""
	case !running:
		return "it is not running"
	case verb == lifecycle.Pause && m.Paused:
		return "it is paused"
	case verb == lifecycle.Unpause && !m.Paused:
		return "it is not paused"
	case verb == lifecycle.SoftReboot && m.Paused:
		return "it is paused"
	case verb == lifecycle.Migrate && m.Migrating:
		return "it is migrating"
	case verb == lifecycle.Migrate && move != nil:
		return "a migration of it has begun, and is " + string(move.Phase) + "; M cancels it"
	case verb == lifecycle.Migrate && !m.Migratable && !m.OnlyWithDisks:
		return "it cannot be migrated; w says why"
	case verb == lifecycle.MigrateCancel && move != nil && move.Deleting:
		return "its migration is being cancelled"
	case verb == lifecycle.MigrateCancel && move == nil && !m.Migrating:
		return "it is not migrating"
	}
	return ""
}

// ask asks before a verb is done to the machines that it applies to. Only what goes on with a paused guest is done at
// once: the same key pauses it again.
func (s subject) ask(verb lifecycle.Verb) tea.Cmd {
	var chosen []*store.Machine
	var whys []string
	moves := s.moves(verb)
	for _, m := range s.machines {
		if why := s.refusal(verb, m, moves[m.Key()]); why != "" {
			whys = append(whys, why)
			continue
		}
		chosen = append(chosen, m)
	}
	if len(chosen) == 0 { // the rows may have changed since the key was looked at
		return refused(append(whys, "there is no machine here")[0])
	}
	task := s.task(verb, chosen)
	if verb == lifecycle.Unpause && len(s.machines) == 1 && s.hidden == 0 {
		return Send(task) // the same key takes it back
	}
	question := fmt.Sprintf("%s %s?", asked(verb), described(chosen)) + consequence(verb, chosen) +
		migratesAgain(verb, chosen, moves) + leftOut("machine", whys) + unseen("machine", s.hidden)
	ask := Ask{Question: question, Task: task}
	switch {
	case verb == lifecycle.Delete && len(chosen) == 1:
		ask.Typed = chosen[0].Name
	case verb == lifecycle.Delete || len(chosen) > manyTyped:
		ask.Typed = fmt.Sprint(len(chosen))
	}
	return Send(ask)
}

// refused says why a key did nothing.
func refused(why string) tea.Cmd { return Send(Notice{Text: Capital(why)}) }

// asked returns how the question of a verb begins.
func asked(verb lifecycle.Verb) string {
	switch verb {
	case lifecycle.MigrateCancel:
		return "Cancel the migration of"
	case lifecycle.SoftReboot:
		return "Let the guest reboot in"
	}
	return Capital(string(verb))
}

// task does a verb to machines.
func (s subject) task(verb lifecycle.Verb, machines []*store.Machine) Task {
	type command struct {
		namespace string
		withDisks bool
	}
	of := map[command][]*store.Machine{}
	var order []command
	for _, m := range machines {
		c := command{m.Namespace, withDisks(verb, m)}
		if of[c] == nil {
			order = append(order, c)
		}
		of[c] = append(of[c], m)
	}
	var lines []string
	for _, c := range order {
		line := s.line(verb, of[c])
		if verb.Disrupts() {
			line += " --yes"
		}
		if c.withDisks {
			line += " --with-disks"
		}
		lines = append(lines, line)
	}
	actions, meant := s.world.Actions, map[store.Key]types.UID{}
	for of, move := range s.moves(verb) {
		if verb == lifecycle.MigrateCancel {
			meant[of] = move.UID
		}
	}
	brief := ""
	if len(machines) > namedMost {
		brief = fmt.Sprintf("%s %s of %d machines; L has the command", s.world.Program, verb, len(machines))
	}
	return Task{Line: strings.Join(lines, " && "), Brief: brief, Bounded: true, Do: func(ctx context.Context) error {
		targets := make([]lifecycle.Target, len(machines))
		for i, m := range machines {
			targets[i] = target(m)
			targets[i].Migration = meant[m.Key()]
		}
		return actions.Do(ctx, verb, targets...)
	}}
}

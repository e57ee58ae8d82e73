package page

import (
	"slices"

	tea "charm.land/bubbletea/v2"

	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/keymap"
)

// machineBindings returns the keys that do something to machines, wherever those are shown: those that one uses most
// first.
func machineBindings() keymap.Map[subject] {
	return slices.Concat(consoleBindings(), lifeBindings(), lookBindings(), volumeBindings(), keymap.Map[subject]{
		bind(lifecycle.MigrateCancel, "cancel the migration; the guest stays where it is", true, "M"),
		bind(lifecycle.SoftReboot, "ask the guest to reboot", true, "B"),
		bind(lifecycle.Reset, "press the reset button", true, "ctrl+r"),
		bind(lifecycle.Delete, "delete the machine", false, "ctrl+d"),
		{
			Keys: []string{copyKey}, Name: "copy", Help: "copy a field: name, node, address, MAC, UID, image, YAML",
			Allowed: oneMachine(nil), Quiet: true, Do: func(s subject) tea.Cmd {
				return Send(Open{newMachineCopying(s.world, s.machines[0])})
			},
		},
		{
			Keys: []string{"ctrl+y"}, Name: "copy name", Help: "copy namespace and name", Allowed: oneMachine(nil),
			Quiet: true,
			Do: func(s subject) tea.Cmd {
				return Send(Copy{Text: s.machines[0].Key().String(), What: "NAMESPACE/NAME"})
			},
		},
	})
}

// consoleBindings returns the keys for the way into a guest that is always there.
func consoleBindings() keymap.Map[subject] {
	return keymap.Map[subject]{{
		Keys: []string{"c"}, Name: "console", Help: "the serial console; Ctrl-] comes back",
		Allowed: typing(toConsole), Do: run("console"),
	}}
}

// lookBindings returns the other keys that show one machine or lead into its guest.
func lookBindings() keymap.Map[subject] {
	return keymap.Map[subject]{
		{
			Keys: []string{"v"}, Name: "screen", Help: "the screen, drawn in the terminal",
			Allowed: typing(toScreen), Do: run("vnc", "--terminal"),
		},
		{
			Keys: []string{"V"}, Name: "vnc web", Help: "the screen in a web browser",
			Allowed: typing(toScreen), Do: until("vnc", "--web"), Quiet: true,
		},
		{
			Keys: []string{"s"}, Name: "ssh", Help: "a shell in the guest by SSH",
			Allowed: typing(toPort), Do: run("ssh"),
		},
		{
			Keys: []string{"l"}, Name: "logs", Help: "what the guest writes to its serial console",
			Allowed: oneMachine(alive), Do: until("logs", "--follow"),
		},
		{
			Keys: []string{"w"}, Name: "why", Help: "what blocks the machine, and what fixes it",
			Allowed: oneMachine(nil), Do: func(s subject) tea.Cmd {
				return Send(Open{NewWhy(s.world, s.machines[0].Key())})
			},
		},
		{
			Keys: []string{"C"}, Name: "split",
			Help:    "the serial console beside the machine's events; Ctrl-] comes back",
			Allowed: reaching(toConsole), Do: func(s subject) tea.Cmd {
				return Send(Open{NewSplit(s.world, s.machines[0].Key())})
			},
		},
		{
			Keys: []string{"y"}, Name: "YAML", Help: "the object as the server has it", Allowed: oneMachine(nil),
			Do: func(s subject) tea.Cmd {
				return Send(Open{NewYAML(s.world, s.machines[0])})
			},
		},
		{
			Keys: []string{"e"}, Name: "edit",
			Help: "change the object in your editor; what that would do is shown first",
			Allowed: func(s subject) string {
				if why := oneMachine(nil)(s); why != "" {
					return why
				}
				if s.world.ReadOnly {
					return ReadOnly
				}
				return s.world.Actions.ForbiddenTo(s.machines[0].Namespace, "patch", resourceOf(s.machines[0]))
			}, Do: func(s subject) tea.Cmd { return Send(Open{NewEdit(s.world, s.machines[0])}) },
		},
	}
}

// lifeBindings returns the most used of the keys that start, stop and move guests.
func lifeBindings() keymap.Map[subject] {
	return keymap.Map[subject]{
		bind(lifecycle.Start, "start the guest", false, "S"),
		bind(lifecycle.Stop, "shut the guest down", false, "X"),
		bind(lifecycle.Restart, "shut the guest down and start it again", false, "R"),
		{
			Keys: []string{"p"}, Name: "pause", Help: "stop the guest's processors, or let them go on",
			Called:  func(s subject) string { return string(s.pausing()) },
			Allowed: func(s subject) string { return s.allowed(s.pausing()) },
			Do:      func(s subject) tea.Cmd { return s.ask(s.pausing()) },
		},
		bind(lifecycle.Migrate, "move the running guest to another node", false, "m"),
	}
}

// volumeBindings returns the keys for a machine's volumes and snapshots.
func volumeBindings() keymap.Map[subject] {
	return keymap.Map[subject]{
		{
			Keys: []string{"P"}, Name: "plug", Help: "plug a volume in, which the guest sees as a disk",
			Allowed: plugging("addvolume"),
			Do:      func(s subject) tea.Cmd { return Send(Open{NewPlug(s.world, s.machines[0])}) },
		},
		{
			Keys: []string{"U"}, Name: "unplug", Help: "take a volume out again, or the disc out of a CD-ROM drive",
			Allowed: plugging("removevolume"),
			Do:      func(s subject) tea.Cmd { return Send(Open{NewUnplug(s.world, s.machines[0])}) },
		},
		{
			Keys: []string{"Z"}, Name: "resize", Help: "make a volume on a claim larger; shows their sizes",
			Allowed: func(s subject) string {
				return oneMachine(func(m *store.Machine) string { return resizeRefusal(s.world, m) })(s)
			}, Do: func(s subject) tea.Cmd { return Send(Open{NewResize(s.world, s.machines[0])}) },
		},
		{
			Keys: []string{"z"}, Name: "move",
			Help: "copy disks to other storage while the guest runs, or take that back",
			Allowed: func(s subject) string {
				return oneMachine(func(m *store.Machine) string { return moveRefusal(s.world, m) })(s)
			}, Do: func(s subject) tea.Cmd { return Send(Open{NewMove(s.world, s.machines[0])}) },
		},
		{
			Keys: []string{"t"}, Name: takeName, Help: takeHelp,
			Allowed: func(s subject) string {
				return oneMachine(func(m *store.Machine) string { return takeRefusal(s.world, m) })(s)
			}, Do: func(s subject) tea.Cmd { return Send(Open{NewTake(s.world, s.machines[0])}) },
		},
		{
			Keys: []string{"T"}, Name: "snapshots", Help: "the snapshots of the VM, and what was made of them",
			Allowed: oneMachine(func(m *store.Machine) string {
				if m.Instance {
					return "it has no VirtualMachine"
				}
				return ""
			}),
			Do: func(s subject) tea.Cmd { return Send(Open{NewSnapshotsOf(s.world, s.machines[0].Key())}) },
		},
		{
			Keys: []string{exportKey}, Name: exportName, Help: exportHelp,
			Allowed: func(s subject) string {
				return oneMachine(func(m *store.Machine) string { return exportRefusal(s.world, m) })(s)
			}, Do: func(s subject) tea.Cmd { return Send(Open{NewExport(s.world, s.machines[0])}) },
		},
	}
}

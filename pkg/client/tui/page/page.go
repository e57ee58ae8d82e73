// Package page has the dashboard's pages: small models over rows of pkg/client/store and what pkg/client/action can do.
// A page draws itself, says which keys do what, and asks for everything else by messages to the app.
package page

import (
	"context"
	"io"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/clone"
	"github.com/virtkit/virtkit/pkg/client/action/diff"
	"github.com/virtkit/virtkit/pkg/client/action/doctor"
	"github.com/virtkit/virtkit/pkg/client/action/evacuate"
	"github.com/virtkit/virtkit/pkg/client/action/images"
	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/action/snapshot"
	"github.com/virtkit/virtkit/pkg/client/action/volume"
	"github.com/virtkit/virtkit/pkg/client/action/why"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/filter"
	"github.com/virtkit/virtkit/pkg/client/tui/keymap"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
	"github.com/virtkit/virtkit/pkg/report/stats"
)

// Page is one of the dashboard's pages. Its methods are called by one goroutine.
type Page interface {
	// Title stands at the top, with what of the cluster is shown.
	Title() string
	// Refresh reads the rows anew: something has changed, or a second has passed.
	Refresh()
	// Update hears of messages that are not keys.
	Update(tea.Msg) tea.Cmd
	// Key does what a key is bound to; see keymap.Map.Handle.
	Key(key string) (cmd tea.Cmd, known bool, why string)
	// Hints are the page's keys.
	Hints() []keymap.Hint
	// View draws the page: at most height lines of at most width cells.
	View(width, height int) string
	// State says how much what is shown can be believed.
	State() store.State
}

// Filterable pages have rows to choose among.
type Filterable interface {
	SetFilter(filter.Filter)
	Filter() filter.Filter
}

// Matching pages can go from one match to the next: of a search in lines, or of a filter of rows.
type Matching interface {
	// Searched is what was searched for; "" is nothing.
	Searched() string
	// NextMatch goes to the next match, or with -1 to the one before, and says where that is.
	NextMatch(by int) string
}

// Searchable pages have lines to search in.
type Searchable interface {
	Matching
	// Search goes to the first match of text and says where that is; "" ends it and goes back to where it began.
	Search(text string) string
	// EndSearch forgets the search.
	EndSearch()
}

// Clickable pages do something where the mouse clicks; twice is whether it was a double click.
type Clickable interface {
	Click(x, y int, twice bool) tea.Cmd
}

// Starter pages have something to do when they are opened.
type Starter interface {
	Start() tea.Cmd
}

// Closer pages have something going on that ends with them.
type Closer interface {
	Close()
}

// Wanting pages read more than rows. Wants is called after each Refresh while the page is looked at; nil reads nothing.
type Wanting interface {
	Wants() tea.Cmd
}

// Typing pages have fields to type into, and so see a key before it is looked up.
type Typing interface {
	Typed(tea.KeyPressMsg) (cmd tea.Cmd, taken bool)
}

// Grabbing pages take every key by Typed, those that end the dashboard too, but for the pages' own.
type Grabbing interface {
	Typing
	Grabs() bool
}

// Scope is the namespace that is shown; "" is all.
type Scope struct {
	Context, Namespace string
}

// NamespacePhase is whether a namespace is there.
type NamespacePhase int

const (
	// NamespaceThere has nothing against the namespace: it is there, or that is not known.
	NamespaceThere NamespacePhase = iota
	// NamespaceDeleting takes nothing new.
	NamespaceDeleting
	// NamespaceGone is not there.
	NamespaceGone
)

// World has the state that pages read and the actions that they can ask for.
type World struct {
	Scope
	// Home is the namespace for what is made while all are shown: the one shown before, else the kubeconfig's.
	Home string
	// Program is how the user calls us, for command lines.
	Program string
	// Flags are those of the command line that reach the cluster.
	Flags    []string
	ReadOnly bool
	Theme    *theme.Theme
	Now      func() time.Time
	// KeepText writes a text that was typed to a new file, and returns its name; nil keeps none.
	KeepText func(text string) (file string, err error)
	// Explain says an error in words for the user; nil has it say itself.
	Explain func(error) string

	Machines   *store.Machines
	Nodes      *store.Table[store.Node]
	Migrations *store.Table[store.Migration]
	Events     *store.Table[store.Event]
	// Sizings are instance types and preferences, of namespaces and of the cluster. They are followed once
	// FollowSizings was called: few look at them.
	Sizings       []*store.Table[store.Sizing]
	FollowSizings func()
	// Sets are pools and replica sets. They are followed once FollowSets was called.
	Sets       []*store.Table[store.Set]
	FollowSets func()
	// Snapshots are those of VMs, with what was made of them. They are followed once FollowSnapshots was called.
	Snapshots       *store.SnapshotTables
	FollowSnapshots func()
	// Images are the claims with images, and copies. They are followed once FollowImages was called.
	Images       *store.Table[store.Image]
	FollowImages func()
	// Transfers are those of the dashboard, whatever the scope.
	Transfers *Transfers
	Usage     *Usage
	// Pulse says whether the server is silent; nil that it is not.
	Pulse *store.Pulse
	// NamespacePhase says whether the namespace that is shown is there; nil that it is.
	NamespacePhase func() NamespacePhase

	Actions Actions

	draft Draft // what was typed into the form when it was left
	// left is where the user was in tables that were left, by their title.
	left map[string]widget.Place
}

// Say returns an error in words for the user.
func (w *World) Say(err error) string {
	if w.Explain == nil {
		return err.Error()
	}
	return w.Explain(err)
}

// Actions are the functions that pages call. They may take long, so they are called outside of Update.
type Actions interface {
	// Do does a verb to machines, one after the other: what fails does not keep the others from it. One undo takes it
	// back for all that agreed.
	Do(ctx context.Context, verb lifecycle.Verb, targets ...lifecycle.Target) error
	Why(ctx context.Context, namespace, name string) (*why.Report, error)
	// WhySet is Why of a pool or replica set.
	WhySet(ctx context.Context, set *store.Set) (*why.Report, error)
	// Scale changes how many machines a set has, unless it asks for another number by now than its row says; DeleteSet
	// deletes it.
	Scale(ctx context.Context, set *store.Set, replicas int32) error
	DeleteSet(ctx context.Context, set *store.Set) error
	Doctor(ctx context.Context) *doctor.Report
	Stats(ctx context.Context, namespace string) (stats.List, error)
	// Object is an object as YAML; resource is the API's plural.
	Object(ctx context.Context, resource, namespace, name string) (string, error)
	// Cordon keeps a node from being given new guests, or lets it.
	Cordon(ctx context.Context, node string, on bool) error
	// Machine reads a machine's objects; instance says that there is no VirtualMachine.
	Machine(ctx context.Context, key store.Key, instance bool) (*Details, error)
	// Guest is what the guest's agent says.
	Guest(ctx context.Context, key store.Key) (*v1.VirtualMachineInstanceGuestAgentInfo, error)
	// Screenshot is a PNG of the guest's screen, at most MaxPicture bytes.
	Screenshot(ctx context.Context, key store.Key) ([]byte, error)
	// Tail writes the last lines of the guest's serial console, and what is added to it, until ctx ends.
	Tail(ctx context.Context, key store.Key, lines int64, w io.Writer) error
	// Console joins a guest's serial console to its ends until ctx is done, opening it again when it is lost. It
	// returns what ended it for good: a stopped machine, another user who took over.
	Console(ctx context.Context, key store.Key, ends ConsoleEnds) error
	// EvacuationPlan says what evacuating a node would do, and Evacuate begins to do that.
	// withDisks has guests that only their disks keep there move with them.
	EvacuationPlan(ctx context.Context, node string, withDisks bool) (*evacuate.Report, error)
	Evacuate(ctx context.Context, plan *evacuate.Report) error
	// Choices are what there is to choose from for a machine of a namespace; what cannot be read is left out.
	Choices(ctx context.Context, namespace string) Choices
	Create(ctx context.Context, namespace string, vm *v1.VirtualMachine) error
	// Claims are those of a namespace that can be plugged into its machines; users is whether it is known who has them.
	Claims(ctx context.Context, namespace string) (found []volume.Claim, users bool, err error)
	// Plug and Unplug ask for a volume to be plugged into a machine or unplugged. Like all that change a machine, they
	// spare another that has its name by now.
	Plug(ctx context.Context, machine lifecycle.Target, o volume.Options) error
	Unplug(ctx context.Context, machine lifecycle.Target, o volume.Options) error
	// Resize asks for a volume of a machine, or of an instance that no VM has, to be made larger.
	Resize(ctx context.Context, machine lifecycle.Target, volume string, size resource.Quantity) error
	// Move has disks of a running machine copied to new claims of a storage class, all that can be where no volumes are
	// named. CancelMove takes that back.
	Move(ctx context.Context, machine lifecycle.Target, volumes []string, class string) error
	CancelMove(ctx context.Context, machine lifecycle.Target) error
	// TakeSnapshot takes one of a machine. RestorePlan says what a restore of a snapshot to a machine would replace.
	// Restore and Clone begin one, and return the name of the object that is followed.
	TakeSnapshot(ctx context.Context, machine lifecycle.Target, name string, o snapshot.Options) error
	RestorePlan(ctx context.Context, snapshot store.Key, target string) (*snapshot.Plan, error)
	Restore(ctx context.Context, snapshot store.Key, o snapshot.RestoreOptions) (name string, err error)
	Clone(ctx context.Context, snapshot *store.Snapshot, o clone.Options) (name string, err error)
	// DeleteSnapshot deletes a snapshot, restore or clone, and WhySnapshot says what it waits for.
	DeleteSnapshot(ctx context.Context, s *store.Snapshot) error
	WhySnapshot(ctx context.Context, s *store.Snapshot) (*why.Report, error)
	// Catalogue has the images that can be pulled to a namespace; note says why those of the cluster are left out.
	Catalogue(ctx context.Context, namespace string) (found *images.Catalogue, note string, err error)
	// PullImage brings one of them to a claim of a namespace, and RemoveImage deletes an image's claim.
	PullImage(ctx context.Context, namespace string, image *images.Image, t *Transfer) error
	RemoveImage(ctx context.Context, image *store.Image) error
	// CreateFromImage makes a machine whose disk is a copy of an image. note says how to log in to its guest.
	CreateFromImage(ctx context.Context, vm ImageVM) (note string, err error)
	// OwnKey is the file with the user's SSH key, which such a guest gets unless another is given; an error says why
	// there is none.
	OwnKey() (file string, err error)
	// ExportFile says which file of this machine an export's is, and whether it is there; an error says why none is
	// written.
	ExportFile(e Export) (path string, there bool, err error)
	// Export writes a machine or a snapshot into a file.
	Export(ctx context.Context, e Export, t *Transfer) error
	// Undoable is what an undo would take back, or why there is nothing; Undo does that.
	Undoable(ctx context.Context) (*Undoable, error)
	Undo(ctx context.Context, id string) error
	// Verdict says what a change of an object's YAML would do, and Apply does it.
	Verdict(ctx context.Context, before, after string) (*diff.Object, error)
	Apply(ctx context.Context, before, after string) error
	// ForbiddenTo says why the user may not do a verb of the API, "create", to a resource of kubevirt.io, to one of
	// pools, snapshots or clones, or to a subresource of machines, in a namespace.
	ForbiddenTo(namespace, verb, resource string) string
	// Forbidden says why the user may not do a verb to machines of a namespace; "" that they may, or that it is not
	// known.
	Forbidden(namespace string, verb lifecycle.Verb) string
}

// Undoable is a verb that was asked of machines, and can be taken back.
type Undoable struct {
	ID       string
	Verb     lifecycle.Verb
	Machines string // their names
	At       time.Time
}

// Details are the objects of a machine; either may be nil.
type Details struct {
	VM  *v1.VirtualMachine
	VMI *v1.VirtualMachineInstance
}

// MaxPicture bounds a picture of a guest's screen, bytes.
const MaxPicture = 16 << 20

// Messages to the app.
type (
	// Open shows a page above this one.
	Open struct{ Page Page }
	// Replace shows a page instead of Old, if that is still looked at, and says something.
	Replace struct {
		Old, Page Page
		Notice    string
	}
	// Back goes to the page below Of, if that is still looked at, and says something.
	Back struct {
		Of     Page
		Notice string
	}
	// Run hands the terminal to a command of ours, such as console; its arguments are those of the program.
	Run struct {
		Args []string
		// Leave says how the user comes back, where the command itself does not say it.
		Leave string
	}
	// Ask asks before a task is done.
	Ask struct {
		Question string
		// Typed is what has to be typed to agree; with "" a y will do.
		Typed string
		Task  Task
		// Do is done instead of Task: what asks nothing of the cluster.
		Do func() tea.Cmd
	}
	// Input asks for a line of text.
	Input struct {
		// Label stands before it, Value in it.
		Label, Value string
		// Check says what is wrong with it while it is typed, and Done hears of it when nothing is.
		Check func(string) error
		Done  func(string) tea.Cmd
	}
	// Copy puts text on the clipboard, and goes to the page below Of, if there is one and it is still looked at.
	Copy struct {
		Text, What string
		Of         Page
	}
	// Notice is a line for the footer.
	Notice struct {
		Text string
		Bad  bool
	}
	// Tick comes each second.
	Tick time.Time
)

// Task is something to do that may take long.
type Task struct {
	// Line is the command line that does the same.
	Line string
	// Brief is said instead of Line when it is done; empty for Line.
	Brief string
	// Do does it, within a minute unless Bounded says that it sees to its end itself.
	Do      func(context.Context) error
	Bounded bool
	// Then makes the message that says that it has ended; nil makes none.
	Then func(error) tea.Msg
	// Begin is called when it is begun, before Do; Began is a message of it. Either may be nil.
	Begin func()
	Began tea.Msg
	// Progress says how far it is; nil, or an empty text, says nothing.
	Progress func() string
}

// Line returns a command line with the flags that reach this cluster, except for secret ones, so that it does the same
// wherever it is pasted.
func (w *World) Line(words ...string) string {
	return strings.Join(append(words, Shown(w.Flags)...), " ")
}

// Shown returns what may be shown of a command's arguments, quoted for a shell: all but the flags whose values are
// secret.
func Shown(args []string) []string {
	var out []string
	for _, arg := range args {
		switch name, _, _ := strings.Cut(arg, "="); name {
		case "--token", "--password":
		default:
			out = append(out, quoted(arg))
		}
	}
	return out
}

// Send makes a command of a message.
func Send(msg tea.Msg) tea.Cmd { return func() tea.Msg { return msg } }

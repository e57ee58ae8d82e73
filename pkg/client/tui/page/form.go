package page

import (
	"cmp"
	"context"
	"strings"
	"time"

	"charm.land/bubbles/v2/textinput"
	tea "charm.land/bubbletea/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/pkg/client/action/create"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/keymap"
	"github.com/virtkit/virtkit/pkg/client/tui/widget"
)

// Form makes a virtual machine of what is typed, with the manifest beside it. Nothing typed is lost when it is left,
// but for the password.
type Form struct {
	world    *World
	inputs   [fields]textinput.Model
	at       int
	wrong    *mistake
	diskless bool  // whether it would have no disk to boot from, which is allowed
	warned   bool  // whether that was said when it was to be created, so that the next ^s does it
	failed   error // why the server did not create it, until something is changed
	manifest []string
	choices  Choices
	chosenOf string    // the namespace that the choices were asked of last
	asked    time.Time // when that was
	// answered is whether there are choices, which are of namespace choicesOf.
	answered  bool
	choicesOf string
	unknown   string // what is said instead of "Complete." while the form cannot know that
	lacks     bool   // whether the mistake is that the choices lack a name
	// offset is the manifest's; alone is whether the manifest is shown instead of the fields, where there is no room
	// for both.
	offset, height int
	alone          bool
	fitting        fitting
	begun          bool         // whether anything was typed: an empty form is no mistake
	left           [fields]bool // the fields that were gone through, of which mistakes are shown
	keys           keymap.Map[*Form]
}

type (
	choicesRead struct {
		page      *Form
		namespace string
		choices   Choices
	}
	formDone struct {
		page *Form
		key  store.Key
		err  error
	}
)

// NewForm makes the page, with what was typed when it was left.
func NewForm(w *World) *Form {
	p := &Form{world: w, keys: formKeys()}
	p.makeInputs()
	if p.inputs[fieldNamespace].Value() == "" {
		p.inputs[fieldNamespace].SetValue(w.forNew())
	}
	p.inputs[fieldNamespace].CursorEnd()
	if p.begun = w.draft != (Draft{}); p.begun {
		p.leaveAll()
	}
	p.changed()
	return p
}

// forNew returns the namespace of what is made, unless another is chosen.
func (w *World) forNew() string { return cmp.Or(w.Namespace, w.Home, metav1.NamespaceDefault) }

// TakeDraft takes over what was typed into the form of a new machine while another namespace or cluster was shown. The
// namespace of the form follows, unless another was typed there.
func (w *World) TakeDraft(from *World) {
	d := from.draft
	if d[fieldNamespace] == from.forNew() {
		d[fieldNamespace] = ""
	}
	w.draft = d
}

// makeInputs makes the fields, with what each suggests and what was typed in it.
func (p *Form) makeInputs() {
	w := p.world
	for i := range p.inputs {
		input := textinput.New()
		input.Prompt = ""
		input.Placeholder = draftFields[i].example
		input.CharLimit = 4096
		input.ShowSuggestions = true
		input.SetValue(w.draft[i])
		input.SetStyles(fieldStyles(w, &input))
		p.inputs[i] = input
	}
	p.inputs[fieldPassword].EchoMode = textinput.EchoPassword
	p.inputs[fieldStrategy].SetSuggestions(create.RunStrategies())
	p.inputs[fieldCloudInit].SetSuggestions(create.CloudInitSources())
	p.inputs[fieldSysprep].SetSuggestions([]string{"src:"})
	p.inputs[fieldCredential].SetSuggestions([]string{"src:"})
	var imports []string
	for _, kind := range create.ImportTypes() {
		imports = append(imports, importExample(kind))
	}
	p.inputs[fieldImport].SetSuggestions(imports)
}

// formKeys returns the keys of the page.
func formKeys() keymap.Map[*Form] {
	move := func(by int) func(*Form) tea.Cmd {
		return func(p *Form) tea.Cmd { return p.moveTo(p.at + by) }
	}
	return keymap.Map[*Form]{
		{
			Keys: []string{"ctrl+s"}, Name: "submit", Help: "create the machine", Allowed: (*Form).refusal,
			Do: (*Form).create,
		},
		{
			Keys: []string{"tab"}, Name: "complete", Help: "take what is suggested, or go to the next field",
			Do: func(p *Form) tea.Cmd {
				if p.suggests() {
					input := &p.inputs[p.at]
					input.SetValue(input.CurrentSuggestion())
					input.CursorEnd()
					p.changed()
					return p.read()
				}
				return p.moveTo(p.at + 1)
			},
		},
		{Keys: []string{"enter", "down"}, Name: "next", Help: "the next field", Do: move(1)},
		{Keys: []string{"up", "shift+tab"}, Help: "the field before", Quiet: true, Do: move(-1)},
		{
			Keys: []string{"ctrl+n"}, Help: "the next suggestion", Quiet: true,
			Do: func(p *Form) tea.Cmd { return p.give(tea.KeyPressMsg{Code: 'n', Mod: tea.ModCtrl}) },
		},
		{
			Keys: []string{"ctrl+o"}, Name: "manifest", Help: "the manifest instead of the fields, and back",
			Do: func(p *Form) tea.Cmd { p.alone = !p.alone; return nil },
		},
		{Keys: []string{"ctrl+y"}, Name: "copy", Help: "copy the manifest", Do: func(p *Form) tea.Cmd {
			return Send(Copy{Text: strings.Join(p.manifest, "\n") + "\n", What: "the manifest"})
		}},
		{
			Keys: []string{"pgdown"}, Help: "the manifest one page down", Quiet: true,
			Do: func(p *Form) tea.Cmd { p.offset += p.height; return nil },
		},
		{
			Keys: []string{"pgup"}, Help: "the manifest one page up", Quiet: true,
			Do: func(p *Form) tea.Cmd { p.offset -= p.height; return nil },
		},
	}
}

// importExample returns how a volume of a type begins.
func importExample(kind string) string {
	text := "type:" + kind + ",size:10Gi"
	for _, parameter := range create.ImportParameters(kind) {
		if parameter == "url" || parameter == "src" {
			return text + "," + parameter + ":"
		}
	}
	return text
}

// Start reads what there is to choose from.
func (p *Form) Start() tea.Cmd { return tea.Batch(p.inputs[p.at].Focus(), p.read()) }

// Close keeps what was typed, but for the password.
func (p *Form) Close() {
	d := p.draft()
	d[fieldPassword] = ""
	p.world.draft = d
}

func (p *Form) draft() Draft {
	var d Draft
	for i := range p.inputs {
		d[i] = p.inputs[i].Value()
		if i != fieldPassword {
			d[i] = strings.TrimSpace(d[i])
		}
	}
	return d
}

// read asks for the choices in the namespace, when it is another one.
func (p *Form) read() tea.Cmd {
	namespace := p.draft()[fieldNamespace]
	if namespace == p.chosenOf {
		return nil
	}
	return p.readOf(namespace)
}

func (p *Form) readOf(namespace string) tea.Cmd {
	p.chosenOf, p.asked = namespace, p.world.Now()
	actions := p.world.Actions
	return limited(func(ctx context.Context) tea.Msg {
		return choicesRead{p, namespace, actions.Choices(ctx, namespace)}
	})
}

// Wants reads the choices again while they lack a name that was typed: it may be made meanwhile.
func (p *Form) Wants() tea.Cmd {
	if !p.answered || p.unknown == "" && !p.lacks || p.world.Now().Sub(p.asked) < rereadAfter {
		return nil
	}
	return p.readOf(p.draft()[fieldNamespace])
}

// changed builds the machine anew.
func (p *Form) changed() {
	p.failed, p.warned = nil, false
	p.judge()
}

// judge sets what is wrong with what was typed, as far as the choices tell.
func (p *Form) judge() {
	d := p.draft()
	vm, wrong := d.build()
	if p.unknown, p.lacks = "", false; wrong == nil {
		wrong = p.lookUp(vm)
	}
	p.wrong, p.diskless = wrong, wrong == nil && !store.HasSystem(&vm.Spec.Template.Spec)
	if text := d.preview(); text != "" {
		p.manifest = strings.Split(strings.TrimRight(text, "\n"), "\n")
	}
}

func (p *Form) moveTo(i int) tea.Cmd {
	p.inputs[p.at].Blur()
	left := p.at
	p.left[left] = true
	p.at = (i + fields) % fields
	p.inputs[p.at].CursorEnd()
	cmd := p.inputs[p.at].Focus()
	if left == fieldNamespace {
		return tea.Batch(cmd, p.read())
	}
	return cmd
}

// suggests reports whether there is more to the field than was typed.
func (p *Form) suggests() bool {
	input := &p.inputs[p.at]
	return input.Value() != "" && len(input.MatchedSuggestions()) > 0 && input.CurrentSuggestion() != input.Value()
}

func (p *Form) refusal() string {
	switch {
	case p.world.ReadOnly:
		return ReadOnly
	case p.wrong != nil && p.wrong.field >= 0:
		return draftFields[p.wrong.field].title + ": " + p.wrong.text
	case p.wrong != nil:
		return p.wrong.text
	}
	return p.world.Actions.ForbiddenTo(p.draft()[fieldNamespace], "create", "virtualmachines")
}

func (p *Form) create() tea.Cmd {
	d := p.draft()
	vm, wrong := d.build()
	if wrong != nil {
		return nil
	}
	if p.diskless && !p.warned {
		p.warned = true
		return nil
	}
	actions, key := p.world.Actions, store.Key{Namespace: d[fieldNamespace], Name: d[fieldName]}
	return Send(Task{
		Line: p.world.Line(d.line(p.world.Program)),
		Do:   func(ctx context.Context) error { return actions.Create(ctx, key.Namespace, vm) },
		Then: func(err error) tea.Msg { return formDone{p, key, err} },
	})
}

// Typed gives what is no key of the form to the field.
func (p *Form) Typed(m tea.KeyPressMsg) (tea.Cmd, bool) {
	switch key := m.String(); key {
	case "esc", "ctrl+c":
		return nil, false
	default:
		if key == "ctrl+s" { // whoever is done sees all that is wrong
			p.leaveAll()
		}
		if cmd, known, why := p.keys.Handle(p, key); known {
			if why != "" {
				return Send(Notice{Text: Capital(why)}), true
			}
			return cmd, true
		}
	}
	return p.give(m), true
}

func (p *Form) give(msg tea.Msg) tea.Cmd {
	var cmd tea.Cmd
	p.begun = true
	p.inputs[p.at], cmd = p.inputs[p.at].Update(msg)
	p.changed()
	return cmd
}

// Update takes what was read, what was pasted, and the outcome.
func (p *Form) Update(msg tea.Msg) tea.Cmd {
	switch m := msg.(type) {
	case tea.PasteMsg:
		return p.give(tea.PasteMsg{Content: strings.TrimSpace(m.Content)})
	case choicesRead:
		if m.page == p && m.namespace == p.chosenOf {
			p.choices, p.answered, p.choicesOf = m.choices, true, m.namespace
			for field, list := range map[int][]string{
				fieldNamespace:    m.choices.Namespaces,
				fieldInstancetype: m.choices.Instancetypes, fieldPreference: m.choices.Preferences,
				fieldClaim: m.choices.Claims,
			} {
				harmless := make([]string, len(list))
				for i, name := range list {
					harmless[i] = widget.Harmless(name)
				}
				p.inputs[field].SetSuggestions(harmless)
			}
			p.judge()
		}
	case formDone:
		if m.page == p && m.err != nil {
			p.failed = m.err
			return nil
		}
		if m.page == p {
			for i := range p.inputs {
				p.inputs[i].SetValue("")
			}
			return Send(Replace{Old: p, Page: NewMachine(p.world, m.key)})
		}
	}
	return nil
}

// Title returns the page's name.
func (p *Form) Title() string { return "New VM" }

// Refresh does nothing: there is nothing to read.
func (p *Form) Refresh() {}

// State returns the state of the connection.
func (p *Form) State() store.State { return connection(p.world) }

// Key does what a key is bound to.
func (p *Form) Key(key string) (tea.Cmd, bool, string) { return p.keys.Handle(p, key) }

// Hints returns the page's keys.
func (p *Form) Hints() []keymap.Hint { return p.keys.Hints(p) }

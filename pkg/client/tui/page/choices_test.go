package page

import (
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/tui/theme"
)

// TestFormLooksNamesUp: a form whose namespace, instance type or preference the cluster does not have is not complete,
// and where that is not known it does not say so either.
func TestFormLooksNamesUp(t *testing.T) {
	t.Parallel()
	all := Choices{
		Namespaces: []string{"default", "prod"}, Claims: []string{},
		Instancetypes: []string{"u1.small", "virtualmachineinstancetype/own"}, Preferences: []string{},
	}
	const small = "u1.small, virtualmachineinstancetype/own"
	some := Choices{Namespaces: all.Namespaces}
	for name, c := range map[string]struct {
		namespace, instancetype, preference string
		choices                             *Choices // nil is no answer yet
		shown                               string   // the namespace that is shown
		wrong                               int      // the field, fields for none
		says                                string
	}{
		"complete":              {"prod", "", "", &all, "", fields, "Complete."},
		"no namespace":          {"", "", "", &all, "", fieldNamespace, "Namespace: give one"},
		"another namespace":     {"made", "", "", &all, "", fieldNamespace, `"made"; there are default, prod`},
		"an instance type":      {"prod", "u1.small", "", &all, "", fields, "Complete."},
		"one of the namespace":  {"prod", "virtualmachineinstancetype/own", "", &all, "", fields, "Complete."},
		"another instance type": {"prod", "foo", "", &all, "", fieldInstancetype, `type "foo"; there are ` + small},
		"another of the namespace": {
			"prod", "virtualmachineinstancetype/foo", "", &all, "", fieldInstancetype, "virtualmachineinstancetype/foo",
		},
		"another preference":     {"prod", "", "foo", &all, "", fieldPreference, `no preference "foo"; there are none`},
		"not read yet":           {"made", "", "", nil, "", fields, "Reading what there is"},
		"namespaces not known":   {"made", "", "", &Choices{}, "", fields, "Complete, if there is namespace made"},
		"the namespace shown":    {"prod", "", "", &Choices{}, "prod", fields, "Complete."},
		"preferences not known":  {"prod", "", "foo", &some, "", fields, "if there is preference foo"},
		"instancetypes unlisted": {"prod", "foo", "", &some, "", fields, "if there is instance type foo"},
	} {
		w := &World{Theme: theme.New(theme.Options{}), Actions: allowing{}, Now: time.Now}
		w.Namespace = c.shown
		p := NewForm(w)
		for field, text := range map[int]string{
			fieldName: "web", fieldNamespace: c.namespace, fieldImage: "image:1", fieldInstancetype: c.instancetype,
			fieldPreference: c.preference,
		} {
			p.inputs[field].SetValue(text)
		}
		p.begun = true
		p.leaveAll()
		p.changed()
		if c.choices != nil {
			p.chosenOf = c.namespace
			p.Update(choicesRead{p, c.namespace, *c.choices})
		}
		switch {
		case p.wrong == nil && c.wrong != fields:
			t.Errorf("%s: nothing is wrong", name)
		case p.wrong != nil && p.wrong.field != c.wrong:
			t.Errorf("%s: field %d: %s", name, p.wrong.field, p.wrong.text)
		}
		said := strings.Join(strings.Fields(ansi.Strip(strings.Join(p.viewVerdict(60), " "))), " ")
		if !strings.Contains(said, c.says) {
			t.Errorf("%s: says %q, nothing of %q", name, said, c.says)
		}
	}
}

// allowing forbids nothing.
type allowing struct{ Actions }

func (allowing) ForbiddenTo(string, string, string) string { return "" }

func (allowing) Forbidden(string, lifecycle.Verb) string { return "" }

// TestFormReadsAgain: a name that the choices lack may be made meanwhile, so they are read again, after a while.
func TestFormReadsAgain(t *testing.T) {
	t.Parallel()
	now := time.Now()
	w := &World{Theme: theme.New(theme.Options{}), Actions: allowing{}, Now: func() time.Time { return now }}
	p := NewForm(w)
	p.inputs[fieldName].SetValue("web")
	p.inputs[fieldNamespace].SetValue("made")
	p.changed()
	p.read()
	have := func(namespaces ...string) { p.Update(choicesRead{p, "made", Choices{Namespaces: namespaces}}) }
	have("prod")
	if p.Wants() != nil {
		t.Error("it is read again at once")
	}
	if now = now.Add(rereadAfter); p.Wants() == nil {
		t.Error("it is not read again")
	}
	have("made", "prod")
	if now = now.Add(rereadAfter); p.wrong != nil || p.Wants() != nil {
		t.Errorf("wrong: %v, and it is read once more", p.wrong)
	}
}

// TestFormDoubtsClaims: a claim that is not there or that another machine uses is said instead of that the form is
// complete.
func TestFormDoubtsClaims(t *testing.T) {
	t.Parallel()
	there := Choices{
		Namespaces: []string{"prod"}, Claims: []string{"free", "used"},
		UsedBy: map[string][]string{"used": {"web", "db"}},
	}
	for name, c := range map[string]struct {
		claims  string
		choices Choices
		says    string
	}{
		"free":             {"free", there, "Complete."},
		"used":             {"used", there, "Complete, but claim used is used by web, db."},
		"the second":       {"free src:used", there, "Complete, but claim used is used by web, db."},
		"not there":        {"new", there, "Complete, but there is no claim new in namespace prod: the VM waits"},
		"not readable":     {"new", Choices{Namespaces: []string{"prod"}}, "Complete."},
		"users not known":  {"used", Choices{Namespaces: []string{"prod"}, Claims: []string{"used"}}, "Complete."},
		"a container disk": {"", there, "Complete."},
	} {
		w := &World{Theme: theme.New(theme.Options{}), Actions: allowing{}, Now: time.Now}
		p := NewForm(w)
		p.inputs[fieldName].SetValue("web")
		p.inputs[fieldNamespace].SetValue("prod")
		p.inputs[fieldClaim].SetValue(c.claims)
		p.inputs[fieldImage].SetValue("image:1")
		p.begun, p.chosenOf = true, "prod"
		p.leaveAll()
		p.changed()
		p.Update(choicesRead{p, "prod", c.choices})
		said := strings.Join(strings.Fields(ansi.Strip(strings.Join(p.viewVerdict(60), " "))), " ")
		if !strings.Contains(said, c.says) {
			t.Errorf("%s: says %q, nothing of %q", name, said, c.says)
		}
	}
}

// TestFormExamples: with an instance type the form does not show what CPUs and memory there are without one. Titles are
// shown whole.
func TestFormExamples(t *testing.T) {
	w := &World{Theme: theme.New(theme.Options{}), Actions: allowing{}, Now: time.Now}
	p := NewForm(w)
	for instancetype, want := range map[string]string{"": "default 1", "u1.small": "the instance type's"} {
		p.inputs[fieldInstancetype].SetValue(instancetype)
		p.viewFields(80, 60)
		if got := p.inputs[fieldCPUs].Placeholder; got != want {
			t.Errorf("of instance type %q the form shows %q, not %q", instancetype, got, want)
		}
	}
	fields := newFieldset(w, []formField{{title: "Instance type"}, {title: "Name"}})
	if got := ansi.Strip(fields.draw(w.Theme, 0, 60)); !strings.Contains(got, "Instance type ") {
		t.Errorf("the field is %q", got)
	}
}

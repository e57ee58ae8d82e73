package page

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/store"
)

// Choices are the names that there are for a new machine. A nil list could not be read, an empty one has none.
type Choices struct {
	Namespaces, Instancetypes, Preferences, Claims []string
	// UsedBy are the machines whose volumes the claims are, by claim; empty where that is not known.
	UsedBy map[string][]string
}

// reference is a name in the form that the cluster must have.
type reference struct {
	field int
	// name is as a list of Choices has it; what is what is called so.
	name, what string
	// own says that the list must be of the draft's namespace.
	own  bool
	list func(Choices) []string
}

// references returns the names in vm that the form can look up.
func references(vm *v1.VirtualMachine) []reference {
	out := []reference{{
		field: fieldNamespace, name: vm.Namespace, what: "namespace",
		list: func(c Choices) []string { return c.Namespaces },
	}}
	if m := vm.Spec.Instancetype; m != nil && m.Name != "" {
		r := sizing(m.Kind, m.Name, "virtualmachineinstancetype")
		r.field, r.what = fieldInstancetype, "instance type"
		r.list = func(c Choices) []string { return c.Instancetypes }
		out = append(out, r)
	}
	if m := vm.Spec.Preference; m != nil && m.Name != "" {
		r := sizing(m.Kind, m.Name, "virtualmachinepreference")
		r.field, r.what = fieldPreference, "preference"
		r.list = func(c Choices) []string { return c.Preferences }
		out = append(out, r)
	}
	return out
}

// sizing returns the reference to an instance type or a preference: those of the namespace have their kind, own, before
// the name.
func sizing(kind, name, own string) reference {
	if strings.EqualFold(kind, own) {
		return reference{name: own + "/" + name, own: true}
	}
	return reference{name: name}
}

// doubt returns what a form that has no mistake says instead of that it is complete, because the machine would not
// start: a claim is not there, or is used already. It is empty when nothing is known to be in the way.
func (p *Form) doubt(vm *v1.VirtualMachine) string {
	if p.choices.Claims == nil || p.choicesOf != vm.Namespace {
		return ""
	}
	for i := range vm.Spec.Template.Spec.Volumes {
		v := &vm.Spec.Template.Spec.Volumes[i]
		if v.PersistentVolumeClaim == nil {
			continue
		}
		name := v.PersistentVolumeClaim.ClaimName
		switch users := p.choices.UsedBy[name]; {
		case !slices.Contains(p.choices.Claims, name):
			p.lacks = true
			return fmt.Sprintf("Complete, but there is no claim %s in namespace %s: the VM waits for it.", name,
				vm.Namespace)
		case len(users) > 0:
			return fmt.Sprintf("Complete, but claim %s is used by %s.", name, strings.Join(users, ", "))
		}
	}
	return ""
}

// rereadAfter is how long the choices are taken for what there is when they lack a name that was typed.
const rereadAfter = 3 * time.Second

// lookUp returns the first name in vm that the cluster does not have, and notes in p.unknown one that cannot be looked
// up.
func (p *Form) lookUp(vm *v1.VirtualMachine) *mistake {
	key := store.Key{Namespace: vm.Namespace, Name: vm.Name}
	if p.world.Machines != nil && p.world.Machines.Get(key) != nil {
		return &mistake{fieldName, "there is a VM " + key.String()}
	}
	for _, r := range references(vm) {
		list := r.list(p.choices)
		switch {
		case !p.answered:
			p.unknown = "Reading what there is in the cluster " + p.world.Theme.Ellipsis
			return nil
		case list == nil || r.own && p.choicesOf != vm.Namespace:
			if r.field == fieldNamespace && r.name == p.world.Namespace {
				continue // it is shown, and a user of one namespace may not list them
			}
			p.unknown = fmt.Sprintf("Complete, if there is %s %s, which is not known.", r.what, r.name)
		case !slices.Contains(list, r.name):
			p.lacks = true
			return &mistake{r.field, fmt.Sprintf("there is no %s %q; %s", r.what, r.name, offered(list))}
		}
	}
	if p.unknown == "" {
		p.unknown = p.doubt(vm)
	}
	return nil
}

// offeredMost is how many names are offered instead of one that is not there.
const offeredMost = 5

// offered returns which names there are.
func offered(list []string) string {
	switch more := len(list) - offeredMost; {
	case len(list) == 0:
		return "there are none"
	case len(list) == 1:
		return "there is " + list[0]
	case more > 0:
		return fmt.Sprintf("there are %s and %d more", strings.Join(list[:offeredMost], ", "), more)
	}
	return "there are " + strings.Join(list, ", ")
}

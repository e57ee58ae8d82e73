package page

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/store"
)

// TestAskSaysWhyNot asks for a verb that does nothing to its only machine, as when the row changed after the key was
// looked at: the key says why, and is never silent.
func TestAskSaysWhyNot(t *testing.T) {
	t.Parallel()
	w := &World{Actions: allowing{}, Migrations: store.NewTable[store.Migration](func() {})}
	running := &store.Machine{Namespace: "prod", Name: "web", Phase: v1.Running}
	for _, test := range []struct {
		verb     lifecycle.Verb
		machines []*store.Machine
		want     string
	}{
		{lifecycle.MigrateCancel, []*store.Machine{running}, "It is not migrating"},
		{lifecycle.Start, []*store.Machine{running}, "It is running"},
		{lifecycle.Delete, []*store.Machine{{Namespace: "prod", Name: "web", Deleting: true}}, "It is being deleted"},
		{lifecycle.Stop, nil, "There is no machine here"},
	} {
		s := subject{world: w, machines: test.machines}
		cmd := s.ask(test.verb)
		if cmd == nil {
			t.Errorf("%s says nothing", test.verb)
			continue
		}
		if notice, ok := cmd().(Notice); !ok || notice.Text != test.want {
			t.Errorf("%s: %+v, not %q", test.verb, cmd(), test.want)
		}
	}
}

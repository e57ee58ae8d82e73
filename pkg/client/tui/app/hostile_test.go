package app

import (
	"context"
	"io"
	"reflect"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/diff"
	"github.com/virtkit/virtkit/pkg/client/action/doctor"
	"github.com/virtkit/virtkit/pkg/client/action/evacuate"
	"github.com/virtkit/virtkit/pkg/client/action/snapshot"
	"github.com/virtkit/virtkit/pkg/client/action/volume"
	"github.com/virtkit/virtkit/pkg/client/action/why"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/page"
	"github.com/virtkit/virtkit/tests/hostile"
)

// hostileFake answers as fake does, with hostile text at the end of every string.
type hostileFake struct{ *fake }

// structure keeps the strings by which the dashboard finds and classifies things, which admission holds to their forms.
func structure(path, _ string) bool {
	for _, end := range []string{
		".Namespace", ".UID", ".Phase", ".Kind", ".APIVersion", ".Resource", ".Group", ".Version", ".Verdict",
		".Outcome", ".Type",
	} {
		if strings.HasSuffix(path, end) {
			return true
		}
	}
	return false
}

func spoilt[T any](v T, err error) (T, error) {
	hostile.Fill(&v, hostile.Text, func(path, value string) bool { return structure(path, value) })
	return v, err
}

func (f hostileFake) Why(ctx context.Context, ns, name string) (*why.Report, error) {
	return spoilt(f.fake.Why(ctx, ns, name))
}

func (f hostileFake) WhySet(ctx context.Context, s *store.Set) (*why.Report, error) {
	return spoilt(f.fake.WhySet(ctx, s))
}

func (f hostileFake) Doctor(ctx context.Context) *doctor.Report {
	r, _ := spoilt(f.fake.Doctor(ctx), nil)
	return r
}

func (f hostileFake) Object(ctx context.Context, kind, ns, name string) (string, error) {
	return spoilt(f.fake.Object(ctx, kind, ns, name))
}

func (f hostileFake) Machine(ctx context.Context, key store.Key, watched bool) (*page.Details, error) {
	return spoilt(f.fake.Machine(ctx, key, watched))
}

func (f hostileFake) Guest(ctx context.Context, key store.Key) (*v1.VirtualMachineInstanceGuestAgentInfo, error) {
	return spoilt(f.fake.Guest(ctx, key))
}

func (f hostileFake) EvacuationPlan(ctx context.Context, node string, withDisks bool) (*evacuate.Report, error) {
	return spoilt(f.fake.EvacuationPlan(ctx, node, withDisks))
}

func (f hostileFake) Choices(ctx context.Context, namespace string) page.Choices {
	c, _ := spoilt(f.fake.Choices(ctx, namespace), nil)
	return c
}

func (f hostileFake) Claims(ctx context.Context, namespace string) ([]volume.Claim, bool, error) {
	claims, users, err := f.fake.Claims(ctx, namespace)
	claims, err = spoilt(claims, err)
	return claims, users, err
}

func (f hostileFake) RestorePlan(ctx context.Context, key store.Key, target string) (*snapshot.Plan, error) {
	return spoilt(f.fake.RestorePlan(ctx, key, target))
}

func (f hostileFake) Verdict(ctx context.Context, before, after string) (*diff.Object, error) {
	return spoilt(f.fake.Verdict(ctx, before, after))
}

func (f hostileFake) Tail(ctx context.Context, key store.Key, lines int64, w io.Writer) error {
	if _, err := io.WriteString(w, "tail "+hostile.Text+"\ntail"+hostile.Text); err != nil {
		return err
	}
	return f.fake.Tail(ctx, key, lines, w)
}

func (f hostileFake) Console(ctx context.Context, key store.Key, ends page.ConsoleEnds) error {
	ends.Connected()
	if _, err := io.WriteString(ends.Out, "\u202e\u061c\u200e\u2028\x00"+hostile.JSON+hostile.Text); err != nil {
		return err
	}
	return f.fake.Console(ctx, key, ends)
}

// TestHostileFrames draws every page of objects that have hostile text in every string, and while nothing can be read
// for reasons that have. Nothing but virtctl's own colours may be in the frames.
func TestHostileFrames(t *testing.T) {
	t.Parallel()
	for _, failing := range []bool{false, true} {
		f := &fake{
			doctor: &doctor.Report{
				Checks: []doctor.Check{
					{Area: "client", Name: "version", Status: "ok", Message: "virtctl v1", Fixes: []string{"spec"}},
				},
			},
		}
		w := world(f)
		w.Actions = hostileFake{f}
		w.Context += hostile.Text
		spoilTables(w)
		if failing {
			lose(w, errText)
			f.err = errText
		}
		for name, makePage := range everyPage {
			a := New(w)
			a.editing = func(e page.EditText) tea.Cmd {
				return page.Send(e.Done("kind: VirtualMachine\n"+hostile.Text, nil))
			}
			run(t, a, a.home(makePage), 0)
			for _, size := range sizes {
				drive(t, a, size, Changed{})
				// What is drawn before the last line of defence is held to it, too.
				for what, drawn := range map[string]string{"screen": a.screen(), "frame": a.View().Content} {
					if found := hostile.Find(drawn, true); found != "" {
						t.Errorf("%s, failing %t: the %s has %s", name, failing, what, found)
					}
				}
			}
			for _, key := range []string{"enter", "?", "esc", "L", "esc", ":", "'describe", "enter", "esc"} {
				press(t, a, key)
				if found := hostile.Find(a.screen(), true); found != "" {
					t.Errorf("%s after %s, failing %t: %s", name, key, failing, found)
				}
			}
			a.Close()
		}
	}
}

var errText = hostileError("connection refused " + hostile.Text + "\n" + hostile.Text)

type hostileError string

func (e hostileError) Error() string { return string(e) }

// spoilTables makes every string of every row hostile.
func spoilTables(w *page.World) {
	keep := func(path, value string) bool {
		return structure(path, value) || path == ".Name" || path == ".Machine" || path == ".Object" ||
			path == ".Owner" || path == ".Of" || path == ".Content"
	}
	spoil := func(rows any) {
		for i := range reflect.ValueOf(rows).Len() {
			row := reflect.ValueOf(rows).Index(i)
			hostile.Fill(row.Interface(), hostile.Text, func(path, value string) bool { return keep(path, value) })
		}
	}
	spoil(w.Machines.Rows())
	spoil(w.Nodes.Rows())
	spoil(w.Migrations.Rows())
	spoil(w.Events.Rows())
	for _, table := range w.Sizings {
		spoil(table.Rows())
	}
	for _, table := range w.Sets {
		spoil(table.Rows())
	}
	spoil(w.Snapshots.Rows())
	spoil(w.Snapshots.Contents.Rows())
	spoil(w.Snapshots.Volumes.Rows())
}

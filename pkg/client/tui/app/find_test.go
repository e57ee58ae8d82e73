package app

import (
	"slices"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/doctor"
	"github.com/virtkit/virtkit/pkg/client/tui/keymap"
	"github.com/virtkit/virtkit/pkg/client/tui/page"
)

// TestFindTakesEveryLetter types a search on every page: no letter of it runs as an action.
func TestFindTakesEveryLetter(t *testing.T) {
	t.Parallel()
	for name, makePage := range everyPage {
		if name == "split" || name == "form" { // letters are typed there
			continue
		}
		f := &fake{doctor: &doctor.Report{}}
		a := New(world(f))
		a.editing = func(e page.EditText) tea.Cmd { return page.Send(e.Done("kind: VirtualMachine\n", nil)) }
		run(t, a, a.home(makePage), 0)
		press(t, a, "/", "'pXRSmMBCOE+=wyes ", "enter", "y")
		if len(f.done) > 0 || a.ask != nil {
			t.Errorf("%s: did %v, asks %v", name, f.done, a.ask)
		}
		a.Close()
	}
}

// TestFindInText searches in a page of lines, round its end, and back.
func TestFindInText(t *testing.T) {
	t.Parallel()
	a := New(world(&fake{}))
	drive(t, a, tea.WindowSizeMsg{Width: 80, Height: 10})
	press(t, a, "?")
	first := a.screen()
	press(t, a, "/", "'LEAVE")
	if s := ansi.Strip(a.screen()); !strings.Contains(s, "/LEAVE") || !strings.Contains(s, "1 of 1") || s == first {
		t.Errorf("the search does not go to the match while it is typed:\n%s", s)
	}
	press(t, a, "esc")
	if !strings.HasPrefix(a.screen(), strings.Split(first, "\n")[0]) || a.searchable().Searched() != "" {
		t.Errorf("esc does not go back:\n%s", a.screen())
	}
	press(t, a, "/", "'the page of", "enter")
	var seen []string
	for range 10 {
		seen = append(seen, a.notice)
		press(t, a, "n")
	}
	want := []string{"1 of 9", "2 of 9", "3 of 9", "4 of 9", "5 of 9", "6 of 9", "7 of 9", "8 of 9", "9 of 9", "1 of 9"}
	if !slices.Equal(seen, want) {
		t.Errorf("n goes %q, not %q", seen, want)
	}
	press(t, a, "N", "N")
	if a.notice != "9 of 9" {
		t.Errorf("N goes to %q", a.notice)
	}
	press(t, a, "esc", "n")
	if len(a.stack) != 2 || !strings.Contains(a.notice, "Nothing is searched for") {
		t.Errorf("esc ends the search and stays; n says so: %q", a.notice)
	}
	press(t, a, "/", "'nosuch", "enter")
	if a.notice != "Nothing here matches" {
		t.Errorf("nothing says that nothing matches: %q", a.notice)
	}
}

// TestMarks keeps marks to what is seen, counts them, and names what they choose. Those of rows that a filter hides
// stay, and what is done leaves them out.
func TestMarks(t *testing.T) {
	t.Parallel()
	f := &fake{}
	a := New(world(f))
	drive(t, a, sizes[1])
	marked := func(want, why string) {
		t.Helper()
		title, _, _ := strings.Cut(strings.Split(ansi.Strip(a.screen()), "\n")[2], "  ")
		if _, got, _ := strings.Cut(title, ", "); got != want {
			t.Errorf("%s: %q says %q, not %q", why, title, got, want)
		}
	}
	press(t, a, "*")
	marked("4 marked", "all of them")
	press(t, a, "/", "'prod", "enter")
	marked("4 marked, 2 of them hidden", "a filter hides two")
	press(t, a, "ctrl+d")
	if q := a.ask.Question; !strings.Contains(q, "prod/db, prod/web?") ||
		!strings.Contains(q, "2 marked machines are left out: the filter hides them.") {
		t.Errorf("the question does not say whom it is about: %q", q)
	}
	press(t, a, "'2", "enter")
	if want := []string{"delete prod/db", "delete prod/web"}; !slices.Equal(f.done, want) {
		t.Errorf("did %q, not %q", f.done, want)
	}
	press(t, a, "esc")
	marked("4 marked", "the filter is gone")
	press(t, a, "/", "'!prod", "enter", "*")
	marked("2 marked, 2 of them hidden", "* takes the marks of what is shown away")
	press(t, a, "X")
	if a.ask == nil || !strings.Contains(a.ask.Question, "? 2 marked machines are left out: the filter") {
		t.Errorf("the row under the cursor: %+v", a.ask)
	}
	press(t, a, "esc", "*")
	marked("4 marked, 2 of them hidden", "* adds marks")
	press(t, a, "u")
	marked("", "u takes all away")
	press(t, a, "esc")
	marked("", "those that were hidden too")
	press(t, a, "/", "'nc-a", "enter", "*", "ctrl+d")
	if a.ask != nil {
		t.Errorf("letters in their order were taken: %q", a.ask.Question)
	}
}

// TestMarksOfWhatIsGone forgets the mark of a machine that was deleted, whether a filter hides it or not.
func TestMarksOfWhatIsGone(t *testing.T) {
	t.Parallel()
	a := New(world(&fake{}))
	drive(t, a, sizes[1])
	press(t, a, "*", "/", "'test", "enter")
	a.World.Machines.Load(nil, nil)
	drive(t, a, Changed{})
	a.World.Machines.Load([]v1.VirtualMachine{{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "web"}}}, nil)
	drive(t, a, Changed{})
	press(t, a, "esc")
	if s := a.screen(); strings.Contains(s, "marked") || !strings.Contains(s, "web") {
		t.Errorf("another machine of the same name is marked:\n%s", s)
	}
}

// TestKeysMeanOneThing walks the keys of all pages: one key has one name, wherever it has one. Enter opens what is
// there, r reads again, and space marks a row or turns a page: those change nothing.
func TestKeysMeanOneThing(t *testing.T) {
	t.Parallel()
	meaning := map[string]map[string][]string{}
	note := func(where string, a *App, own bool) {
		hints := a.top().Hints()
		if !own {
			hints = a.keys.Hints(a)
		}
		for _, h := range hints {
			if h.Name == "" || slices.Contains([]string{"enter", "ctrl+y", "tab"}, h.Code) {
				continue
			}
			if meaning[h.Code] == nil {
				meaning[h.Code] = map[string][]string{}
			}
			meaning[h.Code][h.Name] = append(meaning[h.Code][h.Name], where)
		}
	}
	for name, makePage := range everyPage {
		a := New(world(&fake{doctor: &doctor.Report{}}))
		a.editing = func(e page.EditText) tea.Cmd { return page.Send(e.Done("kind: VirtualMachine\n", nil)) }
		run(t, a, a.home(makePage), 0)
		note(name, a, true)
		note("every page", a, false)
		a.Close()
	}
	for key, names := range meaning {
		if len(names) > 1 {
			t.Errorf("%s means %v", key, names)
		}
	}
}

// TestPlaceIsKept leaves a page and comes back to the same row and order.
func TestPlaceIsKept(t *testing.T) {
	t.Parallel()
	a := New(world(&fake{}))
	press(t, a, "down", "2", "down", "1", "enter")
	if got := a.top().Title(); got != "prod/web" {
		t.Errorf("the cursor was left on prod/web and is on %s", got)
	}
	press(t, a, "esc", "o", "3", "1", "enter")
	if got := a.top().Title(); got != "prod/web" {
		t.Errorf("the cursor is on %s after the order was turned", got)
	}
}

// TestBarIsClicked goes to a page by the mouse.
func TestBarIsClicked(t *testing.T) {
	t.Parallel()
	a := New(world(&fake{}))
	drive(t, a, sizes[1])
	drive(t, a, tea.MouseClickMsg{X: 12, Y: 1, Button: tea.MouseLeft})
	if got := a.top().Title(); !strings.HasPrefix(got, "Nodes") {
		t.Errorf("a click on the bar shows %s:\n%s", got, a.screen())
	}
	drive(t, a, tea.MouseClickMsg{X: 10, Y: 5, Button: tea.MouseLeft})
	if n := a.top().(*page.Nodes); n == nil {
		t.Error("a click on a row leaves the page")
	}
}

// TestTwoEscapesAtOnce go back twice: a terminal may send them as one key.
func TestTwoEscapesAtOnce(t *testing.T) {
	t.Parallel()
	a := New(world(&fake{}))
	press(t, a, "y", "/", "'kind", "enter")
	drive(t, a, tea.KeyPressMsg{Code: tea.KeyEscape, Mod: tea.ModAlt})
	if len(a.stack) != 1 {
		t.Errorf("still on %s", a.top().Title())
	}
}

// TestNextOfFilteredRows goes from one row that matches to the next, round the end, and says that / is missing.
func TestNextOfFilteredRows(t *testing.T) {
	t.Parallel()
	a := New(world(&fake{}))
	press(t, a, "n")
	if a.notice != "Nothing is searched for; / searches" {
		t.Errorf("without a filter n says %q", a.notice)
	}
	press(t, a, "/", "'prod", "enter")
	if got := a.top().Title(); got != "VMs 2/4 that match prod" {
		t.Errorf("the title does not say what the filter is: %q", got)
	}
	var seen []string
	for _, key := range []string{"n", "n", "N", "N"} {
		press(t, a, key)
		seen = append(seen, a.notice)
	}
	if want := []string{"2 of 2", "1 of 2", "2 of 2", "1 of 2"}; !slices.Equal(seen, want) {
		t.Errorf("n, n, N, N go %q, not %q", seen, want)
	}
	press(t, a, "n", "enter")
	if got := a.top().Title(); got != "prod/web" {
		t.Errorf("the second of the rows is %s", got)
	}
	press(t, a, "esc", "esc", "/", "'nosuch", "enter", "n")
	if a.notice != "Nothing here matches" {
		t.Errorf("of no rows n says %q", a.notice)
	}
}

// TestKeysWithoutUse presses, on every page, a key of machines that the page may not have, and one that none has: each
// that does nothing says so.
func TestKeysWithoutUse(t *testing.T) {
	t.Parallel()
	for name, makePage := range everyPage {
		if slices.Contains([]string{
			"split", "form", "plug", "resize", "move", "take", "restore", "clone", "image-vm", "export",
		}, name) {
			// letters are typed there
			continue
		}
		a := New(world(&fake{doctor: &doctor.Report{}}))
		a.editing = func(e page.EditText) tea.Cmd { return page.Send(e.Done("kind: VirtualMachine\n", nil)) }
		run(t, a, a.home(makePage), 0)
		press(t, a, "Q")
		if a.notice != "Q does nothing on this page; ? shows its keys" {
			t.Errorf("%s: of Q it says %q", name, a.notice)
		}
		has := slices.ContainsFunc(a.top().Hints(), func(h keymap.Hint) bool { return h.Code == "w" })
		press(t, a, "w")
		if want := "w (why) does nothing on this page; ? shows its keys"; !has && a.notice != want {
			t.Errorf("%s: of w it says %q", name, a.notice)
		}
		a.Close()
	}
}

// TestWordsOfKeys has an event with its article, and no word of VMs for a key that other pages have too.
func TestWordsOfKeys(t *testing.T) {
	t.Parallel()
	a := New(world(&fake{doctor: &doctor.Report{}}))
	t.Cleanup(a.Close)
	drive(t, a, sizes[1])
	press(t, a, "4", "Y")
	if got := a.top().Title(); !strings.HasPrefix(got, "copy of an event ") {
		t.Errorf("the page is called %q", got)
	}
	press(t, a, "5", "y")
	if a.notice != "y does nothing on this page; ? shows its keys" {
		t.Errorf("of y it says %q", a.notice)
	}
}

// TestFormWaits types into the form of a new machine: it complains of a field when that was left, and of the disk when
// the fields of disks were.
func TestFormWaits(t *testing.T) {
	t.Parallel()
	a := New(world(&fake{}))
	drive(t, a, sizes[1])
	says := func(what string, shown bool) {
		t.Helper()
		if s := ansi.Strip(a.screen()); strings.Contains(s, what) != shown {
			t.Errorf("%q is shown: %t\n%s", what, !shown, s)
		}
	}
	press(t, a, "+", "'New")
	says("no name", false)
	says("A name and a disk are enough", true)
	press(t, a, "down")
	says("name: ", true)
	press(t, a, "up", "backspace", "backspace", "backspace", "'new")
	says("It has no disk to boot from", false)
	press(t, a, "down", "down", "down", "down", "down", "down", "'image", "down", "up")
	says("It has no disk to boot from", false)
	says("Complete.", true)
	for range 5 {
		press(t, a, "backspace")
	}
	says("It has no disk to boot from", false)
	press(t, a, "down", "down", "down")
	says("It has no disk to boot from", true)
	press(t, a, "up", "up", "up", "up", "up", "'x")
	says("is no number of CPUs", true) // it was left before
	a.Close()

	a = New(world(&fake{}))
	drive(t, a, sizes[1])
	press(t, a, "+", "'New")
	says("! Name", false)
	press(t, a, "ctrl+s")
	says("! Name", true)
}

// TestFormWarnsOfNoDisk creates a machine without a disk only when that is asked for twice.
func TestFormWarnsOfNoDisk(t *testing.T) {
	t.Parallel()
	f := &fake{}
	a := New(world(f))
	t.Cleanup(a.Close)
	drive(t, a, sizes[1])
	warns := func(keys ...string) {
		t.Helper()
		press(t, a, keys...)
		screen := strings.Join(strings.Fields(ansi.Strip(a.screen())), " ")
		if !strings.Contains(screen, "It has no disk to boot from") ||
			!strings.Contains(screen, "^s again creates it") || len(f.done) > 0 {
			t.Errorf("it does not warn, or did %v:\n%s", f.done, a.screen())
		}
	}
	warns("+", "'new", "ctrl+s")
	warns("'er", "ctrl+s") // it was changed since
	press(t, a, "ctrl+s")
	if !slices.Equal(f.done, []string{"create default/newer"}) {
		t.Errorf("did %v", f.done)
	}
}

// TestNothingToUnplug names the machine that nothing was plugged into, and says what to do.
func TestNothingToUnplug(t *testing.T) {
	t.Parallel()
	w := world(&fake{nothing: true})
	w.Namespace = "prod"
	a := New(w)
	drive(t, a, sizes[1])
	press(t, a, "/", "'web", "enter", "U")
	s := strings.Join(strings.Fields(ansi.Strip(a.screen())), " ")
	for _, want := range []string{
		"VM prod/web has no volume that was plugged in", "P on the machine plugs a volume in",
	} {
		if !strings.Contains(s, want) {
			t.Errorf("nothing says %q:\n%s", want, s)
		}
	}
	if strings.Contains(s, "0 shows all namespaces") {
		t.Errorf("a machine is of one namespace:\n%s", s)
	}
}

// TestLeavingVolume lists a volume that the guest does not let go of, and does not unplug it twice.
func TestLeavingVolume(t *testing.T) {
	t.Parallel()
	f := &fake{leaving: true}
	a := New(world(f))
	drive(t, a, sizes[1])
	press(t, a, "down", "U")
	s := strings.Join(strings.Fields(ansi.Strip(a.screen())), " ")
	for _, want := range []string{"data", "Detaching (VolumeDetachFailed)", "on its way out"} {
		if !strings.Contains(s, want) {
			t.Errorf("nothing says %q:\n%s", want, s)
		}
	}
	press(t, a, "U")
	s = strings.Join(strings.Fields(ansi.Strip(a.screen())), " ")
	if len(f.done) > 0 || !strings.Contains(s, "was unplugged already: the guest holds it") {
		t.Errorf("did %v:\n%s", f.done, s)
	}
}

// TestWrongFilterIsSaidWhole types half of a regular expression: what is wrong with it stands beside it, whole.
func TestWrongFilterIsSaidWhole(t *testing.T) {
	t.Parallel()
	a := New(world(&fake{}))
	drive(t, a, sizes[0])
	press(t, a, "/", "'^[")
	if a.prompt.err == nil || !strings.Contains(ansi.Strip(a.screen()), a.prompt.err.Error()) {
		t.Errorf("what is wrong, %v, is not shown:\n%s", a.prompt.err, a.screen())
	}
}

// TestPatternOfAName has ^ and $ be the ends of a column, wherever that is.
func TestPatternOfAName(t *testing.T) {
	t.Parallel()
	a := New(world(&fake{}))
	drive(t, a, sizes[1])
	for pattern, want := range map[string]string{"^we": "1/4", "eb$": "1/4", "^eb": "0/4", "^prod$": "2/4"} {
		press(t, a, "/", "'"+pattern, "enter")
		if title := ansi.Strip(strings.Split(a.screen(), "\n")[2]); !strings.Contains(title, want) {
			t.Errorf("%s: %q, not %s", pattern, title, want)
		}
		press(t, a, "esc")
	}
}

// TestFilterBeginsAnew types a filter into a table that has one: the new one replaces it, up brings the old one, and
// who types nothing keeps it.
func TestFilterBeginsAnew(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		keys []string
		want string
	}{
		"another":           {[]string{"/", "'web", "enter", "/", "'db", "enter"}, "db"},
		"nothing":           {[]string{"/", "'web", "enter", "/", "enter"}, "web"},
		"given up":          {[]string{"/", "'web", "enter", "/", "'db", "esc"}, "web"},
		"the old, longer":   {[]string{"/", "'web", "enter", "/", "up", "'x", "enter"}, "webx"},
		"the old, as it is": {[]string{"/", "'web", "enter", "/", "up", "down", "up", "enter"}, "web"},
		"typed and removed": {[]string{"/", "'web", "enter", "/", "'d", "backspace", "enter"}, ""},
	} {
		a := New(world(&fake{}))
		press(t, a, c.keys...)
		if got := a.filterable().Filter().String(); got != c.want {
			t.Errorf("%s: the filter is %q, not %q", name, got, c.want)
		}
		a.Close()
	}
}

// TestFormNameTaken: the form of a new machine is not complete with the name of one that is there.
func TestFormNameTaken(t *testing.T) {
	t.Parallel()
	a := New(world(&fake{}))
	t.Cleanup(a.Close)
	drive(t, a, sizes[1])
	press(t, a, "+", "'web", "down")
	for range len("default") {
		press(t, a, "backspace")
	}
	press(t, a, "'prod", "down", "ctrl+s")
	if s := ansi.Strip(a.screen()); !strings.Contains(s, "Name: there is a VM prod/web") {
		t.Errorf("nothing says that the name is taken:\n%s", s)
	}
}

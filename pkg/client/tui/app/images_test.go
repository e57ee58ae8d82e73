package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/virtkit/virtkit/pkg/client/action/images"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/page"
)

func (f *fake) Catalogue(context.Context, string) (*images.Catalogue, string, error) {
	if err := f.wait(); err != nil {
		return nil, "", err
	}
	found := images.Empty()
	if f.nothing {
		return found, "", nil
	}
	for _, i := range []images.Image{
		{Name: "alpine", Version: "3.22", Title: "Alpine Linux 3.22", User: "alpine", Size: "2Gi"},
		{
			Name: "debian", Version: "13", Aliases: []string{"trixie"}, Title: "Debian 13 (trixie)", User: "debian",
			Instancetype: "u1.small", Preference: "debian", Size: "5Gi",
		},
		{Name: "debian", Version: "12", Title: "Debian 12 (bookworm)", User: "debian", Size: "5Gi"},
	} {
		i.Sources = []images.Source{{
			Arch: "amd64", URL: "https://images.example/" + i.Ref() + ".qcow2",
			Checksums: "https://images.example/SHA512SUMS",
		}}
		found.Images = append(found.Images, i)
	}
	return found, "", nil
}

func (f *fake) PullImage(ctx context.Context, namespace string, image *images.Image, t *page.Transfer) error {
	f.done = append(f.done, "pull "+image.Ref()+" to "+namespace)
	t.Show("download "+image.Ref(), 0, 1<<30)
	return f.transfer(ctx, func() { t.Show("download "+image.Ref(), 1<<28, 1<<30) })
}

// transfer ends when it is cancelled if it is to be held, else at once.
func (f *fake) transfer(ctx context.Context, moves func()) error {
	moves()
	if f.held != nil {
		close(f.held)
		<-ctx.Done()
		return fmt.Errorf("read: %w", ctx.Err())
	}
	return f.err
}

func (f *fake) RemoveImage(_ context.Context, image *store.Image) error {
	f.done = append(f.done, "remove "+image.Key().String())
	return f.err
}

func (f *fake) CreateFromImage(_ context.Context, vm page.ImageVM) (string, error) {
	f.done = append(f.done, fmt.Sprintf("create %+v", vm))
	if vm.SSHKey != "" {
		return "", f.err
	}
	return "account debian lets you log in with /home/me/.ssh/id_ed25519.pub", f.err
}

func (f *fake) OwnKey() (string, error) {
	if f.keyless {
		return "", errors.New("there is no SSH key in /home/me/.ssh")
	}
	return "/home/me/.ssh/id_ed25519.pub", nil
}

func (f *fake) ExportFile(e page.Export) (string, bool, error) {
	if e.File == "" {
		return "", false, errors.New("give one")
	}
	return "/home/me/" + e.File, e.File == "old.tar", nil
}

func (f *fake) Export(ctx context.Context, e page.Export, t *page.Transfer) error {
	f.done = append(f.done, fmt.Sprintf("export %s %s snapshot %t to %s", e.Key, e.UID, e.Snapshot, e.File))
	t.Report("the snapshot is being taken")
	return f.transfer(ctx, func() {
		t.Show("root", 0, 4<<30)
		t.Show("root", 1<<30, 4<<30)
		t.Note("not in the file: Secret web-keys")
	})
}

// imageTable has an image of which web was made, one that is being pulled, and one that is not in the catalogue.
func imageTable() *store.Table[store.Image] {
	t := store.NewTable[store.Image](func() {})
	rows := map[store.Key]*store.Image{}
	for _, i := range []*store.Image{
		{
			Namespace: "prod", Name: "debian-13", UID: "i1", Created: now.Add(-time.Hour), Ref: "debian/13",
			User: "debian", Instancetype: "u1.small", Preference: "debian", Size: "5Gi", Class: "local",
			Phase: images.PhaseReady, Labels: map[string]string{"image.virtkit.io/name": "debian"},
		},
		{
			Namespace: "prod", Name: "golden-2", UID: "i2", Created: now.Add(-time.Minute), Ref: "golden/2",
			Size: "20Gi", Class: "local", Phase: images.PhaseIncomplete,
		},
		{
			Namespace: "prod", Name: "scratch", UID: "i3", Created: now.Add(-time.Minute), Size: "8Gi", Class: "local",
			Phase: images.PhaseIncomplete, Received: 3 << 20, Bytes: 1 << 30, Message: "no byte came for 10m0s",
		},
		{Namespace: "prod", Name: "web-disk", Of: "debian-13"},
	} {
		rows[i.Key()] = i
	}
	t.Load(rows)
	return t
}

// imageWorld is a world whose images are those of namespace prod.
func imageWorld(f *fake) *page.World {
	w := world(f)
	w.Namespace = "prod"
	return w
}

// TestImagesArePulledRemovedAndUsed drives the page from keys to what is asked of the server and to the command lines
// in the log.
func TestImagesArePulledRemovedAndUsed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		keys       []string
		want, line string
	}{
		"pulled": {
			[]string{"9", "/", "'alpine", "enter", "f", "y"},
			"pull alpine/3.22 to prod",
			"virtctl image pull alpine/3.22 --namespace prod",
		},
		"an upload removed": {
			[]string{"9", "/", "'scratch", "enter", "ctrl+d", "'scratch", "enter"},
			"remove prod/scratch", "kubectl delete pvc scratch --namespace prod",
		},
		"pull asks":             {[]string{"9", "/", "'alpine", "enter", "f"}, "", ""},
		"pulled although there": {[]string{"9", "/", "'u1", "enter", "/", "'Ready", "enter", "f", "y"}, "", ""},
		"pulled, of none":       {[]string{"9", "/", "'golden", "enter", "f", "y"}, "", ""},
		"pulled from its page": {
			[]string{"9", "/", "'alpine", "enter", "enter", "f", "y"},
			"pull alpine/3.22 to prod",
			"",
		},
		"removed": {
			[]string{"9", "/", "'golden", "enter", "ctrl+d", "'golden-2", "enter"},
			"remove prod/golden-2",
			"virtctl image rm golden/2 --yes --namespace prod",
		},
		"removal wants the name": {[]string{"9", "/", "'golden", "enter", "ctrl+d", "y", "enter"}, "", ""},
		"removed, not pulled":    {[]string{"9", "/", "'alpine", "enter", "ctrl+d", "y", "enter"}, "", ""},
		"a VM": {
			[]string{"9", "/", "'Ready", "enter", "+", "'new", "down", "'20Gi", "ctrl+s", "y"},
			"create {Namespace:prod Name:new Image:debian/13 Size:20Gi Instancetype: Preference: RunStrategy: SSHKey:}",
			"virtctl create vm --name new --image debian/13 --image-size 20Gi --namespace prod --apply",
		},
		"a VM with a given key": {
			[]string{"9", "/", "'Ready", "enter", "+", "'new", "up", "'ssh-ed25519 AAAA", "ctrl+s", "y"},
			"create {Namespace:prod Name:new Image:debian/13 Size: Instancetype: Preference: RunStrategy: " +
				"SSHKey:ssh-ed25519 AAAA}",
			"virtctl create vm --name new --image debian/13 --ssh-key 'ssh-ed25519 AAAA' --namespace prod --apply",
		},
		"a smaller VM": {
			[]string{"9", "/", "'Ready", "enter", "+", "'new", "down", "'1Gi", "ctrl+s", "y"},
			"",
			"",
		},
		"a VM that is there":   {[]string{"9", "/", "'Ready", "enter", "+", "'web", "ctrl+s", "y"}, "", ""},
		"a VM of what is none": {[]string{"9", "/", "'golden", "enter", "+", "'new", "ctrl+s", "y"}, "", ""},
		"exported": {
			[]string{"/", "'web", "enter", "x", "ctrl+s", "y"},
			"export prod/web vm-web snapshot false to web.tar",
			"virtctl export web web.tar --namespace prod",
		},
		"export asks": {[]string{"/", "'web", "enter", "x", "ctrl+s"}, "", ""},
		"exported to no file": {
			[]string{
				"/", "'web", "enter", "x", "backspace", "backspace",
				"backspace", "backspace", "backspace", "backspace", "backspace", "ctrl+s", "y",
			},
			"",
			"",
		},
		"a snapshot exported": {
			[]string{"8", "/", "'nightly", "enter", "x", "ctrl+s", "y"},
			"export prod/nightly u3 snapshot true to nightly.tar",
			"virtctl export snapshot/nightly nightly.tar --namespace prod",
		},
		"a restore exported":    {[]string{"8", "/", "'restore-gone", "enter", "x", "ctrl+s", "y"}, "", ""},
		"a failed one exported": {[]string{"8", "/", "'late", "enter", "x", "ctrl+s", "y"}, "", ""},
	} {
		f := &fake{}
		w := imageWorld(f)
		a := New(w)
		drive(t, a, sizes[1])
		press(t, a, c.keys...)
		if got := strings.Join(f.done, ", "); got != c.want {
			t.Errorf("%s: did %q, not %q:\n%s", name, got, c.want, ansi.Strip(a.screen()))
		}
		if c.line != "" && (len(a.log) != 1 || a.log[0].line != c.line) {
			t.Errorf("%s: the log has %v, not %q", name, a.log, c.line)
		}
		a.Close()
	}
}

// TestImagesForbidden tries what changes something where that may not be.
func TestImagesForbidden(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*page.World, *fake){
		"read-only": func(w *page.World, _ *fake) { w.ReadOnly = true },
		"forbidden": func(_ *page.World, f *fake) { f.forbidden = "you may not" },
	} {
		f := &fake{}
		w := imageWorld(f)
		prepare(w, f)
		a := New(w)
		press(t, a, "/", "'web", "enter", "x", "ctrl+s", "y", "esc", "9", "f", "y",
			"/", "'Ready", "enter", "ctrl+d", "'debian-13",
			"enter", "+", "'new", "ctrl+s", "y")
		if len(f.done) > 0 {
			t.Errorf("%s: did %v", name, f.done)
		}
		a.Close()
	}
}

// begun agrees to a transfer that is held, and returns when it moves, with what hears of its end.
func begun(t *testing.T, a *App, f *fake, keys ...string) <-chan any {
	t.Helper()
	f.held = make(chan struct{})
	press(t, a, keys...)
	cmd := a.answer("y", "y")
	ended := make(chan any, 9)
	go func() {
		switch msg := cmd().(type) {
		case tea.BatchMsg:
			for _, c := range msg {
				ended <- c()
			}
		default:
			ended <- msg
		}
	}()
	select {
	case <-f.held:
	case <-time.After(time.Minute):
		t.Fatal("it does not begin")
	}
	return ended
}

// TestTransferGoesOnAndIsCancelled leaves the page of a pull that goes on, looks at it, and cancels it.
func TestTransferGoesOnAndIsCancelled(t *testing.T) {
	t.Parallel()
	f := &fake{}
	a := New(imageWorld(f))
	t.Cleanup(a.Close)
	drive(t, a, sizes[1])
	ended := begun(t, a, f, "9", "/", "'alpine", "enter", "f")
	drive(t, a, Changed{})
	if s := ansi.Strip(a.screen()); !strings.Contains(s, "Pulling 25%") ||
		!strings.Contains(s, "download alpine/3.22 25% of 1.0 GiB") {
		t.Errorf("how far it is is not shown:\n%s", s)
	}
	press(t, a, "f")
	if a.notice != "It is being pulled" {
		t.Errorf("pulled again: %q", a.notice)
	}
	press(t, a, "1", ":", "'transfers", "enter")
	if s := ansi.Strip(a.screen()); !strings.Contains(s, "pull of image alpine/3.22 to namespace prod") ||
		!strings.Contains(s, "Running") || !strings.Contains(s, "25%") {
		t.Errorf("the transfer is not shown:\n%s", s)
	}
	press(t, a, "K")
	if s := ansi.Strip(a.screen()); !strings.Contains(s, "Cancel the pull of image alpine/3.22") {
		t.Errorf("it is not asked:\n%s", s)
	}
	press(t, a, "n", "K", "y")
	select {
	case msg := <-ended:
		drive(t, a, msg)
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
	if s := ansi.Strip(a.screen()); !strings.Contains(s, "Cancelled") || len(a.trouble) > 0 {
		t.Errorf("it was not cancelled, trouble %v:\n%s", a.trouble, s)
	}
	press(t, a, "K")
	if a.notice != "No transfer is under way here" {
		t.Errorf("cancelled twice: %q", a.notice)
	}
	press(t, a, "enter")
	if s := ansi.Strip(a.screen()); !strings.Contains(s, "Cancelled, begun 0s ago") {
		t.Errorf("the transfer's page:\n%s", s)
	}
}

// TestTransfersEndWithTheDashboard leaves the dashboard while an export is under way.
func TestTransfersEndWithTheDashboard(t *testing.T) {
	t.Parallel()
	f := &fake{}
	w := imageWorld(f)
	a := New(w)
	t.Cleanup(a.Close)
	drive(t, a, sizes[1])
	ended := begun(t, a, f, "/", "'web", "enter", "x", "ctrl+s")
	if lines := a.Unanswered(); len(lines) != 1 {
		t.Errorf("under way: %v", lines)
	}
	said := w.Transfers.Stop()
	if len(said) != 1 || said[0] != "the export of VM prod/web was cancelled" {
		t.Errorf("said %q", said)
	}
	for range 2 {
		drive(t, a, <-ended)
	}
	if again := w.Transfers.Stop(); len(again) != 0 || len(a.Unanswered()) != 0 {
		t.Errorf("again: %q, %v", again, a.Unanswered())
	}
}

// TestExportSaysWhatIsNotIncluded has an export end, and one that fails.
func TestExportSaysWhatIsNotIncluded(t *testing.T) {
	t.Parallel()
	f := &fake{}
	a := New(imageWorld(f))
	t.Cleanup(a.Close)
	drive(t, a, sizes[1])
	press(t, a, "/", "'web", "enter", "x", "ctrl+s", "y")
	if want := "The export of VM prod/web is done; not in the file: Secret web-keys"; a.notice != want {
		t.Errorf("said %q", a.notice)
	}
	if s := ansi.Strip(a.screen()); !strings.Contains(s, "Transfers 1") || !strings.Contains(s, "/home/me/web.tar") {
		t.Errorf("the transfers are not shown:\n%s", s)
	}
	f.err = errors.New("the disk is full")
	press(t, a, "esc", "x", "ctrl+s", "y")
	if s := ansi.Strip(a.screen()); !strings.Contains(s, "Failed") || len(a.trouble) != 1 ||
		!strings.Contains(a.trouble[0], "the disk is full") {
		t.Errorf("trouble %v:\n%s", a.trouble, s)
	}
}

// TestImageWithoutVMs: the page of an image's VMs says that it has none, not that the namespace has none.
func TestImageWithoutVMs(t *testing.T) {
	t.Parallel()
	a := New(imageWorld(&fake{}))
	t.Cleanup(a.Close)
	drive(t, a, sizes[1])
	press(t, a, "9", "/", "'golden", "enter", "i")
	s := ansi.Strip(a.screen())
	if !strings.Contains(s, "No VM boots from image golden/2 or from a copy of it") ||
		strings.Contains(s, "There are no virtual machines") {
		t.Errorf("it says:\n%s", s)
	}
}

// TestNewestTransferIsUnderTheCursor: the page that an export opens has the cursor on that export, and :transfers does
// not open the page again.
func TestNewestTransferIsUnderTheCursor(t *testing.T) {
	t.Parallel()
	a := New(imageWorld(&fake{}))
	t.Cleanup(a.Close)
	drive(t, a, sizes[1])
	press(t, a, "9", "/", "'alpine", "enter", "f", "y", "1", "/", "'web", "enter", "x", "ctrl+s", "y")
	deep := len(a.stack)
	press(t, a, ":", "'transfers", "enter")
	if len(a.stack) != deep {
		t.Errorf("%d pages, not %d", len(a.stack), deep)
	}
	press(t, a, "enter")
	if s := ansi.Strip(a.screen()); !strings.Contains(s, "  Export of VM prod/web") {
		t.Errorf("under the cursor is:\n%s", s)
	}
}

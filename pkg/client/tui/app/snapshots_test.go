package app

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/snapshot"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/page"
)

// loadSaved loads rows into the tables of their kinds; all else is empty.
func loadSaved(t *store.SnapshotTables, rows ...*store.Snapshot) {
	of := map[string]map[store.Key]*store.Snapshot{store.Snapshots: {}, store.Restores: {}, store.Clones: {}}
	for _, s := range rows {
		of[s.Resource][s.Object()] = s
	}
	t.Snapshots.Load(of[store.Snapshots])
	t.Restores.Load(of[store.Restores])
	t.Clones.Load(of[store.Clones])
	t.Contents.Load(nil)
	t.Volumes.Load(nil)
}

// savedWorld has a snapshot with a restore and a clone of it, one that is being taken, one that failed and one that
// lacks a volume.
func savedWorld() *store.SnapshotTables {
	t := store.NewSnapshotTables(func() {})
	ready := store.Condition{
		Type: "Ready", Status: corev1.ConditionTrue, Since: now.Add(-2 * time.Hour), Reason: "Ready",
		Message: "Operation complete",
	}
	loadSaved(
		t,
		&store.Snapshot{
			Namespace: "prod", Name: "before-upgrade", Resource: store.Snapshots, Kind: "VirtualMachineSnapshot",
			UID: "u1", Created: now.Add(-2 * time.Hour), Taken: now.Add(-2*time.Hour + time.Second),
			Machine: "web", Maker: "virtctl", Phase: "Succeeded", Health: store.Well, Ready: true, Ended: true,
			Deadline: 5 * time.Minute, Content: "c1", Included: []string{"root", "data"},
			Labels: map[string]string{"team": "web"},
			Indications: [][2]string{
				{"Online", "The snapshot was made of a running VM."},
				{"GuestAgent", "The guest agent froze the file systems while the volumes were snapshotted."},
			},
			Conditions: []store.Condition{ready},
		},
		&store.Snapshot{
			Namespace: "prod", Name: "hourly", Resource: store.Snapshots, Kind: "VirtualMachineSnapshot", UID: "u2",
			Created: now.Add(-20 * time.Second), Machine: "web", Maker: "CronTab/hourly", Phase: "InProgress",
			Health: store.Busy,
			Stage:  "Snapshotting the volumes", Deadline: 5 * time.Minute, Content: "c2",
			Conditions: []store.Condition{
				{
					Type: "Progressing", Status: corev1.ConditionTrue, Since: now.Add(-20 * time.Second),
					Message: "Snapshotting the volumes",
				},
			},
		},
		&store.Snapshot{
			Namespace: "prod", Name: "nightly", Resource: store.Snapshots, Kind: "VirtualMachineSnapshot", UID: "u3",
			Created: now.Add(-9 * time.Hour), Machine: "db", Maker: "kubectl-create", Phase: "Succeeded",
			Health: store.Well, Ready: true,
			Ended: true, Retain: true, Included: []string{"root"}, Excluded: []string{"scratch"},
			Indications: [][2]string{{"PartialSnapshot", "Volumes with data were left out: scratch (no class)"}},
		},
		&store.Snapshot{
			Namespace: "test", Name: "late", Resource: store.Snapshots, Kind: "VirtualMachineSnapshot", UID: "u4",
			Created: now.Add(-26 * time.Hour), Machine: "off", Maker: "kubectl-create", Phase: "Failed",
			Health: store.Bad, Ended: true,
			Trouble: "snapshot deadline exceeded",
		},
		&store.Snapshot{
			Namespace: "prod", Name: "restore-before", Resource: store.Restores, Kind: "VirtualMachineRestore",
			UID: "u5", Created: now.Add(-time.Hour), Target: "web", Of: "before-upgrade", Maker: "virtctl",
			Phase: "Complete", Health: store.Well,
			Ended: true, Taken: now.Add(-59 * time.Minute),
			Claims: [][2]string{{"root", "restore-u5-root"}, {"data", "restore-u5-data"}},
		},
		&store.Snapshot{
			Namespace: "prod", Name: "clone-abcde", Resource: store.Clones, Kind: "VirtualMachineClone", UID: "u6",
			Created: now.Add(-time.Minute), Target: "web-two", Of: "before-upgrade", Restore: "clone-restore",
			Maker: "virtctl",
			Phase: "RestoreInProgress", Health: store.Busy, Stage: "The volumes are restored",
		},
		&store.Snapshot{
			Namespace: "prod", Name: "clone-restore", Resource: store.Restores, Kind: "VirtualMachineRestore",
			UID: "u7", Target: "web-two", Of: "before-upgrade", Phase: "InProgress",
		},
		&store.Snapshot{
			Namespace: "prod", Name: "restore-gone", Resource: store.Restores, Kind: "VirtualMachineRestore", UID: "u8",
			Created: now.Add(-30 * time.Hour), Target: "db", Of: "was-deleted", Maker: "virtctl", Phase: "Complete",
			Health: store.Well, Ended: true,
		},
	)
	volume := func(name, claim, of string, ready bool) store.SnapshotVolume {
		return store.SnapshotVolume{
			Name: name, Claim: claim, Class: "local", VolumeSnapshot: of, Size: resource.MustParse("2Gi"), Ready: ready,
		}
	}
	t.Contents.Load(map[store.Key]*store.Content{
		{Namespace: "prod", Name: "c1"}: {
			Namespace: "prod", Name: "c1",
			Volumes: []store.SnapshotVolume{
				volume("root", "web-root", "vmsnapshot-u1-volume-root", true),
				volume("data", "web-data", "vmsnapshot-u1-volume-data", true),
			},
		},
		{Namespace: "prod", Name: "c2"}: {
			Namespace: "prod", Name: "c2",
			Volumes: []store.SnapshotVolume{
				volume("root", "web-root", "vmsnapshot-u2-volume-root", true),
				volume("data", "web-data", "vmsnapshot-u2-volume-data", false),
			},
		},
	})
	t.Volumes.Load(map[store.Key]*store.VolumeSnapshot{
		{Namespace: "prod", Name: "vmsnapshot-u1-volume-root"}: {
			Namespace: "prod", Name: "vmsnapshot-u1-volume-root", Size: resource.MustParse("3Gi"),
		},
	})
	return t
}

// snapshotStatuses are those of a machine with one volume that can be snapshotted; web has another that cannot be.
func snapshotStatuses(key store.Key) []v1.VolumeSnapshotStatus {
	return []v1.VolumeSnapshotStatus{
		{Name: "root", Enabled: false, Reason: "it is a container disk"},
		{Name: "data", Enabled: key.Name != "web", Reason: "StorageClass slow has no VolumeSnapshotClass"},
	}
}

// TestSnapshotsAreTakenRestoredAndDeleted drives the pages from keys to what is asked of the server and to the command
// lines in the log.
func TestSnapshotsAreTakenRestoredAndDeleted(t *testing.T) {
	t.Parallel()
	key := store.Key{Namespace: "prod", Name: "before-upgrade"}
	restored := func(o snapshot.RestoreOptions) string {
		o.SnapshotUID = "u1"
		return fmt.Sprintf("restore %s %+v", key, o)
	}
	for name, c := range map[string]struct {
		keys       []string
		want, line string
	}{
		"a volume that cannot be": {[]string{"down", "t", "ctrl+s", "y"}, "", ""},
		"asks first":              {[]string{"t", "ctrl+s"}, "", ""},
		"taken": {
			[]string{"t", "ctrl+s", "y"},
			"snapshot db-20260102-030405 of prod/db",
			"virtctl snapshot create db db-20260102-030405 --namespace prod",
		},
		"taken without what cannot be, with all there is to say": {
			[]string{"down", "t", "'x", "down", "'90s", "down", "right", "down", "right", "ctrl+s", "y"},
			"snapshot web-20260102-030405x of prod/web 1m30s Retain",
			"virtctl snapshot create web web-20260102-030405x --failure-deadline 90s --deletion-policy Retain " +
				"--partial --namespace prod",
		},
		"of what is under the cursor": {
			[]string{"8", "/", "'nightly", "enter", "t", "ctrl+s", "y"},
			"snapshot db-20260102-030405 of prod/db",
			"virtctl snapshot create db db-20260102-030405 --namespace prod",
		},
		"no time":                {[]string{"t", "down", "'soon", "ctrl+s", "y"}, "", ""},
		"no name":                {[]string{"t", "'A", "ctrl+s", "y"}, "", ""},
		"restored while it runs": {[]string{"8", "/", "'before", "enter", "b", "ctrl+s", "y"}, "", ""},
		"restore wants the VM's name": {
			[]string{"8", "/", "'before", "enter", "b", "down", "right", "ctrl+s", "y", "enter"}, "", "",
		},
		"restored over the VM": {
			[]string{"8", "/", "'before", "enter", "b", "down", "right", "ctrl+s", "'web", "enter"},
			restored(snapshot.RestoreOptions{Target: "web", Stop: true}),
			"virtctl snapshot restore before-upgrade --stop --yes --namespace prod",
		},
		"restored to another": {
			[]string{
				"8", "/", "'before", "enter", "enter", "b", "'-2", "down", "down", "right", "down", "right", "ctrl+s",
				"y",
			},
			restored(snapshot.RestoreOptions{Target: "web-2", Ownership: "None", VolumePolicy: "InPlace"}),
			"virtctl snapshot restore before-upgrade --target web-2 --volume-restore-policy InPlace " +
				"--volume-ownership-policy None --yes --namespace prod",
		},
		"in place of another VM's claim": {
			[]string{"8", "/", "'before", "enter", "enter", "b", "'-3", "down", "down", "right", "ctrl+s", "y"}, "", "",
		},
		"restored, and the old kept": {
			[]string{
				"8", "/", "'before", "enter", "b", "down", "right", "down", "down", "down", "right", "ctrl+s", "'web",
				"enter",
			},
			restored(snapshot.RestoreOptions{Target: "web", Stop: true, Keep: true}),
			"virtctl snapshot restore before-upgrade --stop --keep --yes --namespace prod",
		},
		"nothing to keep of another": {
			[]string{"8", "/", "'before", "enter", "b", "'-2", "down", "down", "down", "down", "right", "ctrl+s", "y"},
			"", "",
		},
		"kept in place": {
			[]string{
				"8", "/", "'before", "enter", "b", "down", "right", "down", "right", "down", "down", "right", "ctrl+s",
				"'web", "enter",
			}, "", "",
		},
		"cloned": {
			[]string{"8", "/", "'before", "enter", "D", "'two", "ctrl+s", "y"},
			"clone prod/two of before-upgrade, snapshot true",
			"virtctl clone before-upgrade two --from-snapshot --namespace prod",
		},
		"cloned over another": {[]string{"8", "/", "'before", "enter", "D", "'db", "ctrl+s", "y"}, "", ""},
		"one that failed":     {[]string{"8", "/", "'late", "enter", "b", "ctrl+s", "y"}, "", ""},
		"a restore is not restored": {
			[]string{"8", "/", "'restore-before", "enter", "down", "down", "b", "ctrl+s", "y"}, "", "",
		},
		"delete wants the name": {[]string{"8", "/", "'nightly", "enter", "ctrl+d", "y", "enter"}, "", ""},
		"deleted": {
			[]string{"8", "/", "'nightly", "enter", "ctrl+d", "'nightly", "enter"},
			"delete snapshot prod/nightly",
			"virtctl snapshot delete nightly --yes --namespace prod",
		},
		"the record of a restore": {
			[]string{"8", "/", "'restore-gone", "enter", "ctrl+d", "'restore-gone", "enter"},
			"delete restore prod/restore-gone", "kubectl delete virtualmachinerestore restore-gone --namespace prod",
		},
		"several": {
			[]string{"8", "/", "'db", "enter", "*", "ctrl+d", "'2", "enter"},
			"delete snapshot prod/nightly, delete restore prod/restore-gone",
			"virtctl snapshot delete nightly --yes --namespace prod && kubectl delete virtualmachinerestore " +
				"restore-gone --namespace prod",
		},
		"by the palette": {
			[]string{
				":", "'snapshots", "enter", "/", "'nightly", "enter", ":", "'delete", "enter", "'nightly", "enter",
			},
			"delete snapshot prod/nightly", "virtctl snapshot delete nightly --yes --namespace prod",
		},
		"those of the row's machine, not more": {
			[]string{"8", "/", "'nightly", "enter", "T", "*", "ctrl+d", "'2", "enter"},
			"delete snapshot prod/nightly, delete restore prod/restore-gone",
			"virtctl snapshot delete nightly --yes --namespace prod && kubectl delete virtualmachinerestore " +
				"restore-gone --namespace prod",
		},
		"those of a machine, not more": {
			[]string{"T", "*", "ctrl+d", "'2", "enter"},
			"delete snapshot prod/nightly, delete restore prod/restore-gone",
			"virtctl snapshot delete nightly --yes --namespace prod && kubectl delete virtualmachinerestore " +
				"restore-gone --namespace prod",
		},
	} {
		f := &fake{}
		a := New(world(f))
		press(t, a, c.keys...)
		if got := strings.Join(f.done, ", "); got != c.want {
			t.Errorf("%s: did %q, not %q\n%s", name, got, c.want, a.screen())
		}
		if c.want == "" {
			continue
		}
		if len(a.log) != 1 || a.log[0].line != c.line {
			t.Errorf("%s: the log has %+v, not %q", name, a.log, c.line)
		}
		if _, form := a.top().(*page.Request); form {
			t.Errorf("%s: still shows the form %s", name, a.top().Title())
		}
	}
}

// TestSnapshotsSayWhatIsMissing looks at the page on clusters without the kinds, without CSI's, and where restores may
// not be read, and at forms that may not be sent.
func TestSnapshotsSayWhatIsMissing(t *testing.T) {
	t.Parallel()
	unserved := apierrors.NewGenericServerResponse(404, "get", schema.GroupResource{}, "", "404 page not found", 0,
		true)
	says := func(name string, a *App, wants ...string) {
		t.Helper()
		s := strings.Join(strings.Fields(ansi.Strip(a.screen())), " ")
		for _, want := range wants {
			if !strings.Contains(s, want) {
				t.Errorf("%s: nothing says %q:\n%s", name, want, a.screen())
			}
		}
	}
	w := world(&fake{})
	w.Snapshots = store.NewSnapshotTables(func() {})
	w.Snapshots.Snapshots.Lost(now, unserved)
	a := New(w)
	press(t, a, "8")
	says("no kinds", a, "This cluster does not have snapshots of virtual machines", "virtctl install")

	w = world(&fake{})
	w.Snapshots = store.NewSnapshotTables(func() {})
	loadSaved(w.Snapshots)
	w.Snapshots.Volumes = store.NewTable[store.VolumeSnapshot](func() {})
	w.Snapshots.Volumes.Lost(now, unserved)
	a = New(w)
	press(t, a, "8")
	says("no CSI kinds", a, "does not have CSI's VolumeSnapshots", "Install their kinds", "There are no snapshots")
	press(t, a, "1", "t")
	says("no CSI kinds, taking", a, "does not have CSI's VolumeSnapshots")

	w = world(&fake{})
	w.Snapshots.Restores = store.NewTable[store.Snapshot](func() {})
	w.Snapshots.Restores.Lost(now, errRefused)
	a = New(w)
	drive(t, a, sizes[1])
	press(t, a, "8")
	says("restores forbidden", a, "Restores are not shown:", "before-upgrade")

	f := &fake{forbidden: "you may not"}
	a = New(world(f))
	press(t, a, "8", "down", "t", "b", "D", "ctrl+d")
	if len(a.stack) > 1 || len(f.done) > 0 || a.ask != nil {
		t.Errorf("forbidden, and shows %s, did %v", a.top().Title(), f.done)
	}
	w = world(&fake{})
	w.ReadOnly = true
	a = New(w)
	press(t, a, "8", "down", "b")
	if len(a.stack) > 1 || !strings.Contains(a.notice, "--read-only") {
		t.Errorf("read-only, and shows %s, %q", a.top().Title(), a.notice)
	}
	// What the server says is shown, and the form stays as it was.
	f = &fake{}
	a = New(world(f))
	press(t, a, "t", "'x")
	f.err = errors.New("a snapshot of that name exists")
	press(t, a, "ctrl+s", "y")
	says("error", a, "a snapshot of that name exists", "db-20260102-030405x")
}

// TestSnapshotsAreATree turns the order round and filters: what was made of a snapshot stays with it.
func TestSnapshotsAreATree(t *testing.T) {
	t.Parallel()
	a := New(world(&fake{}))
	drive(t, a, sizes[1])
	press(t, a, "8")
	order := func() string {
		s := ansi.Strip(a.screen())
		parent, restore, clone := strings.Index(s, "before-upgrade"), strings.Index(s, "└ restore/restore-before"),
			strings.Index(s, "└ clone/clone-abcde")
		switch {
		case parent < 0 || restore < 0 || clone < 0:
			return "not all are shown:\n" + s
		case parent < restore && parent < clone && !strings.Contains(s, "clone-restore"):
			return ""
		}
		return "not below each other:\n" + s
	}
	for _, keys := range [][]string{
		nil, {"o"}, {">"}, {"o"}, {">"}, {"/", "'abcde", "enter"}, {"/", "'clone-a", "enter"},
	} {
		press(t, a, keys...)
		if keys != nil && keys[0] == "/" {
			if s := ansi.Strip(a.screen()); !strings.Contains(s, "before-upgrade") ||
				strings.Contains(s, "restore-before") || strings.Contains(s, "nightly") {
				t.Errorf("the filter does not show the clone and its snapshot alone:\n%s", s)
			}
			press(t, a, "esc")
			continue
		}
		if wrong := order(); wrong != "" {
			t.Errorf("after %v: %s", keys, wrong)
		}
	}
	press(t, a, "/", "'before-upgrade", "enter")
	if wrong := order(); wrong != "" {
		t.Errorf("a filter of the snapshot: %s", wrong)
	}
}

// TestSnapshotProgress sees a snapshot become ready while its page is looked at.
func TestSnapshotProgress(t *testing.T) {
	t.Parallel()
	w := world(&fake{})
	a := New(w)
	drive(t, a, sizes[2])
	press(t, a, "8", "/", "'hourly", "enter")
	if s := ansi.Strip(a.screen()); !strings.Contains(s, "1/2") || !strings.Contains(s, "Snapshotting the volumes") ||
		!strings.Contains(s, "fails in 4m40s") {
		t.Errorf("nothing says how far it is:\n%s", s)
	}
	press(t, a, "enter")
	done := *w.Snapshots.Snapshots.Get(store.Key{Namespace: "prod", Name: "hourly"})
	done.Phase, done.Health, done.Ready, done.Ended = "Succeeded", store.Well, true, true
	done.Stage, done.Included = "", []string{"root", "data"}
	loadSaved(w.Snapshots, &done)
	drive(t, a, Changed{})
	if s := ansi.Strip(a.screen()); !strings.Contains(s, "Succeeded") || !strings.Contains(s, "2/2") ||
		strings.Contains(s, "fails in") {
		t.Errorf("nothing says that it is ready:\n%s", s)
	}
	loadSaved(w.Snapshots)
	drive(t, a, Changed{})
	if s := ansi.Strip(a.screen()); !strings.Contains(s, "It has been deleted.") {
		t.Errorf("nothing says that it was deleted:\n%s", s)
	}
}

// TestYAMLOfWhatIsUnderTheCursor presses y on every page whose rows are objects.
func TestYAMLOfWhatIsUnderTheCursor(t *testing.T) {
	t.Parallel()
	for want, keys := range map[string][]string{
		"virtualmachines prod/web":                 {"down", "y"},
		"virtualmachineinstancemigrations prod/m1": {"3", "y"},
		"virtualmachineclusterpreferences /fedora": {"6", "y"},
		"virtualmachinepools prod/sites":           {"7", "y"},
		"virtualmachinesnapshots prod/nightly":     {"8", "/", "'nightly", "enter", "y"},
	} {
		f := &fake{}
		a := New(world(f))
		press(t, a, keys...)
		if got := strings.Join(f.shown, ", "); got != want {
			t.Errorf("%v: asked for %q, want %q", keys, got, want)
		}
		if s := ansi.Strip(a.screen()); !strings.Contains(s, "kind: VirtualMachine") {
			t.Errorf("%v: no YAML is shown:\n%s", keys, s)
		}
	}
	// enter stays what it was where another key opens a page, too.
	for want, keys := range map[string][]string{
		"prod/web":              {"3", "enter"},
		"snapshot prod/nightly": {"8", "/", "'nightly", "enter", "enter"},
	} {
		a := New(world(&fake{}))
		press(t, a, keys...)
		if got := a.top().Title(); got != want {
			t.Errorf("%v opens %q, want %q", keys, got, want)
		}
	}
}

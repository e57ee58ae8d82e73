package app

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/doctor"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/client/tui/page"
)

// everyPage makes each page. What it is of may not be there.
var everyPage = map[string]func(*page.World) page.Page{
	"machines":   func(w *page.World) page.Page { return page.NewMachines(w) },
	"machine":    func(w *page.World) page.Page { return page.NewMachine(w, web.Key()) },
	"split":      func(w *page.World) page.Page { return page.NewSplit(w, web.Key()) },
	"nodes":      func(w *page.World) page.Page { return page.NewNodes(w) },
	"guests":     func(w *page.World) page.Page { return page.NewGuests(w, "node1") },
	"migrations": func(w *page.World) page.Page { return page.NewMigrations(w) },
	"events":     func(w *page.World) page.Page { return page.NewEvents(w) },
	"sizings":    func(w *page.World) page.Page { return page.NewSizings(w) },
	"pools":      func(w *page.World) page.Page { return page.NewSets(w, "") },
	"pool":       func(w *page.World) page.Page { return page.NewSet(w, sites.Key()) },
	"health":     func(w *page.World) page.Page { return page.NewHealth(w) },
	"why":        func(w *page.World) page.Page { return page.NewWhy(w, web.Key()) },
	"yaml":       func(w *page.World) page.Page { return page.NewYAML(w, web) },
	"evacuation": func(w *page.World) page.Page { return page.NewEvacuation(w, "node1") },
	"edit":       func(w *page.World) page.Page { return page.NewEdit(w, web) },
	"form":       func(w *page.World) page.Page { return page.NewForm(w) },
	"plug":       func(w *page.World) page.Page { return page.NewPlug(w, web) },
	"unplug":     func(w *page.World) page.Page { return page.NewUnplug(w, web) },
	"resize":     func(w *page.World) page.Page { return page.NewResize(w, web) },
	"move":       func(w *page.World) page.Page { return page.NewMove(w, web) },
	"snapshots":  func(w *page.World) page.Page { return page.NewSnapshots(w) },
	"snapshot":   func(w *page.World) page.Page { return page.NewSnapshot(w, before.Key()) },
	"take":       func(w *page.World) page.Page { return page.NewTake(w, web) },
	"restore":    func(w *page.World) page.Page { return page.NewRestore(w, before) },
	"clone":      func(w *page.World) page.Page { return page.NewClone(w, before) },
	"images":     func(w *page.World) page.Page { return page.NewImages(w) },
	"image": func(w *page.World) page.Page {
		return page.NewImage(w, store.Key{Namespace: "prod", Name: "debian-13"}, "debian/13")
	},
	"image-vm": func(w *page.World) page.Page {
		return page.NewImageVM(w, &store.Image{Namespace: "prod", Name: "debian-13", UID: "i1", Ref: "debian/13"})
	},
	"export":    func(w *page.World) page.Page { return page.NewExport(w, web) },
	"transfers": func(w *page.World) page.Page { return page.NewTransferList(w) },
}

var sites = &store.Set{Namespace: "prod", Name: "sites", Resource: store.Pools}

var before = &store.Snapshot{
	Namespace: "prod", Name: "before-upgrade", Resource: store.Snapshots, Machine: "web", Ready: true,
	Created: now.Add(-2 * time.Hour),
}

var web = &store.Machine{Namespace: "prod", Name: "web", ObjectUID: "vm-web"}

var (
	errRefused = errors.New(
		`virtualmachines.kubevirt.io is forbidden: User "system:serviceaccount:prod:somebody" cannot list resource "virtualmachines" in API group "kubevirt.io" at the cluster scope`)
	errCut = error(&url.Error{
		Op: "Get", URL: "https://192.0.2.1:6443/apis/kubevirt.io/v1/virtualmachines?watch=true",
		Err: errors.New("dial tcp 192.0.2.1:6443: connect: connection refused"),
	})
)

// everyState puts a world and what its actions answer into each state.
var everyState = map[string]func(*page.World, *fake){
	"empty": func(w *page.World, f *fake) {
		unread(w)
		w.Machines.Load(nil, nil)
		w.Nodes.Load(nil)
		w.Migrations.Load(nil)
		w.Events.Load(nil)
		w.Sizings[0].Load(nil)
		w.Sets[0].Load(nil)
		loadSaved(w.Snapshots)
		w.Images.Load(nil)
		f.nothing = true
	},
	"loading": func(w *page.World, f *fake) {
		unread(w)
		f.hang = true
	},
	"error": func(w *page.World, f *fake) {
		unread(w)
		lose(w, errCut)
		f.err = errCut
	},
	"stale": func(w *page.World, _ *fake) { lose(w, errCut) },
	"forbidden": func(w *page.World, f *fake) {
		unread(w)
		lose(w, errRefused)
		f.err, f.forbidden = errRefused, "you may not do that in prod"
	},
	"many": many,
}

// unread is a world of which nothing has come yet.
func unread(w *page.World) {
	w.Machines = store.NewMachines(func() {})
	w.Nodes, w.Migrations = store.NewTable[store.Node](func() {}), store.NewTable[store.Migration](func() {})
	w.Events = store.NewTable[store.Event](func() {})
	w.Sizings = []*store.Table[store.Sizing]{store.NewTable[store.Sizing](func() {})}
	w.Sets = []*store.Table[store.Set]{store.NewTable[store.Set](func() {})}
	w.Snapshots = store.NewSnapshotTables(func() {})
	w.Images = store.NewTable[store.Image](func() {})
}

// lose takes the connection away, a minute and a half ago.
func lose(w *page.World, err error) {
	at := now.Add(-90 * time.Second)
	w.Machines.Lost(at, err)
	w.Nodes.Lost(at, err)
	w.Migrations.Lost(at, err)
	w.Events.Lost(at, err)
	w.Sizings[0].Lost(at, err)
	w.Sets[0].Lost(at, err)
	w.Snapshots.Snapshots.Lost(at, err)
	w.Snapshots.Restores.Lost(at, err)
	w.Snapshots.Clones.Lost(at, err)
	w.Snapshots.Contents.Lost(at, err)
	w.Snapshots.Volumes.Lost(at, err)
	w.Images.Lost(at, err)
}

// many has ten thousand rows of everything.
func many(w *page.World, _ *fake) {
	const rows = 10_000
	vms := make([]v1.VirtualMachine, rows)
	vmis := make([]v1.VirtualMachineInstance, rows)
	nodes, moves := map[store.Key]*store.Node{}, map[store.Key]*store.Migration{}
	sets := map[store.Key]*store.Set{}
	var taken []*store.Snapshot
	pulled := map[store.Key]*store.Image{}
	events, sizings := map[store.Key]*store.Event{}, map[store.Key]*store.Sizing{}
	for i := range rows {
		meta := metav1.ObjectMeta{
			Namespace: "prod", Name: fmt.Sprintf("vm-%05d", i),
			CreationTimestamp: metav1.NewTime(now.Add(-time.Duration(i) * time.Minute)),
		}
		if i == 0 {
			meta.Name, meta.UID = web.Name, web.ObjectUID
		}
		strategy := v1.RunStrategyAlways
		vms[i] = v1.VirtualMachine{
			ObjectMeta: meta, Spec: v1.VirtualMachineSpec{RunStrategy: &strategy},
			Status: v1.VirtualMachineStatus{PrintableStatus: v1.VirtualMachineStatusRunning, Ready: true},
		}
		vmis[i] = v1.VirtualMachineInstance{
			ObjectMeta: meta,
			Status:     v1.VirtualMachineInstanceStatus{Phase: v1.Running, NodeName: fmt.Sprintf("node%d", i%7)},
		}
		vmis[i].OwnerReferences = []metav1.OwnerReference{
			*metav1.NewControllerRef(&vms[i], v1.VirtualMachineGroupVersionKind),
		}
		at := now.Add(-time.Duration(i) * time.Second)
		key := store.Key{Namespace: "prod", Name: fmt.Sprintf("row-%05d", i)}
		nodes[store.Key{Name: key.Name}] = &store.Node{
			Name: key.Name, Created: at, Ready: true, Schedulable: true, Heartbeat: at, CPU: resource.MustParse("64"),
			Memory: resource.MustParse("512Gi"), Kubelet: "v1.37.1",
		}
		moves[key] = &store.Migration{
			Namespace: "prod", Name: key.Name, Machine: meta.Name, Phase: v1.MigrationSucceeded, From: "node1",
			To: "node2", Created: at, Started: at, Ended: at.Add(time.Second),
		}
		set := &store.Set{
			Namespace: "prod", Name: key.Name, Resource: store.Pools, Kind: "VirtualMachinePool",
			UID: types.UID(key.Name), Created: at, Desired: int32(i % 9), Current: int32(i % 9), Ready: int32(i % 7),
		}
		if i == 0 {
			set.Name, set.UID, set.Desired = sites.Name, "sites-uid", rows
		}
		yes := true
		vms[i].OwnerReferences = []metav1.OwnerReference{{UID: "sites-uid", Controller: &yes}}
		sets[set.Key()] = set
		s := &store.Snapshot{
			Namespace: "prod", Name: key.Name, Resource: store.Snapshots, Kind: "VirtualMachineSnapshot", Created: at,
			Machine: meta.Name, Phase: "Succeeded", Health: store.Well, Ready: true, Ended: true,
		}
		switch {
		case i == 0:
			s.Name = before.Name
		case i%3 == 0:
			s.Resource, s.Kind, s.Phase, s.Of, s.Target = store.Restores, "VirtualMachineRestore", "Complete",
				before.Name, web.Name
		}
		taken = append(taken, s)
		pulled[key] = &store.Image{
			Namespace: "prod", Name: key.Name, Created: at, Ref: fmt.Sprintf("golden/%05d", i), Size: "5Gi",
			Phase: "Ready",
		}
		events[key] = &store.Event{
			Namespace: "prod", Name: key.Name, Kind: "VirtualMachineInstance", Object: web.Name, Type: "Normal",
			Reason: "Started", Message: fmt.Sprintf("for the %dth time", rows-i), Last: at, Count: 1,
		}
		sizings[key] = &store.Sizing{
			Namespace: "prod", Name: key.Name, Resource: store.Instancetypes, CPUs: uint32(i%64 + 1),
			Memory: resource.MustParse("1Gi"), Created: at,
		}
	}
	w.Machines.Load(vms, vmis)
	w.Nodes.Load(nodes)
	w.Migrations.Load(moves)
	w.Events.Load(events)
	w.Sizings[0].Load(sizings)
	w.Sets[0].Load(sets)
	loadSaved(w.Snapshots, taken...)
	w.Images.Load(pulled)
}

// TestEveryPageInEveryState draws them all, at each size one under the other.
func TestEveryPageInEveryState(t *testing.T) {
	t.Parallel()
	for state, prepare := range everyState {
		f := &fake{doctor: &doctor.Report{}}
		w := world(f)
		if state == "stale" || state == "many" {
			f.doctor.Checks = []doctor.Check{
				{Area: "client", Name: "version", Status: "ok", Message: "virtctl v1, linux/amd64"},
			}
		}
		prepare(w, f)
		for name, makePage := range everyPage {
			a := New(w)
			a.editing = func(e page.EditText) tea.Cmd { return page.Send(e.Done("kind: VirtualMachine\n", nil)) }
			run(t, a, a.home(makePage), 0)
			if name == "split" && (state == "stale" || state == "empty" || state == "many") {
				shown(t, a, "web login:")
			}
			var frames []string
			for _, size := range sizes {
				drive(t, a, size, Changed{})
				frames = append(frames, frame(t, name+" "+state, a))
			}
			a.Close()
			file := filepath.Join("testdata", "matrix", name+"-"+state+".txt")
			got := strings.Join(frames, strings.Repeat("=", 80)+"\n")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s, %s, -want +got\n%s", name, state, diff)
			}
			// Whatever the page, it says how it is.
			for word, of := range map[string]string{
				"stale":     "STALE for 1m30s",
				"error":     "connection refused",
				"forbidden": "forbidden",
			} {
				if state == word && !strings.Contains(strings.Join(strings.Fields(got), " "), of) {
					t.Errorf("%s, %s: nothing says %q", name, state, of)
				}
			}
		}
	}
}

// frame is what is drawn without colours, and whether it fits.
func frame(t *testing.T, name string, a *App) string {
	t.Helper()
	lines := strings.Split(a.screen(), "\n")
	if len(lines) != a.height {
		t.Errorf("%s has %d lines, not %d", name, len(lines), a.height)
	}
	for i, line := range lines {
		if w := ansi.StringWidth(line); w != a.width {
			t.Errorf("%s: line %d is %d cells wide, not %d: %q", name, i, w, a.width, line)
		}
		lines[i] = strings.TrimRight(ansi.Strip(line), " ")
	}
	return strings.Join(lines, "\n") + "\n"
}

// What is shown of nodes while the connection is lost is judged as of then: a clock alone makes no virt-handler silent.
func TestHeartbeatsWhileStale(t *testing.T) {
	w := world(&fake{})
	later := now.Add(time.Hour)
	w.Now = func() time.Time { return later }
	a := New(w)
	press(t, a, "2")
	if !strings.Contains(a.screen(), "virt-handler sile") {
		t.Fatalf("an old heartbeat is not told:\n%s", a.screen())
	}
	w = world(&fake{})
	w.Now = func() time.Time { return later }
	w.Nodes.Lost(now, errCut)
	a = New(w)
	press(t, a, "2", "/", "'node1")
	if s := a.screen(); strings.Contains(s, "virt-handler sile") || !strings.Contains(s, "node1") {
		t.Errorf("a node is called silent by the clock alone:\n%s", s)
	}
}

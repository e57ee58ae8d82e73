package journal

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
)

const server = "https://here"

func entry(at int64, verb lifecycle.Verb, undoes string) Entry {
	return Entry{
		Time: time.Unix(at, 0), Server: server, Verb: verb, Undoes: undoes,
		Machines: []Machine{{Namespace: "ns", Name: "vm"}},
	}
}

func TestFile(t *testing.T) {
	f := File{filepath.Join(t.TempDir(), "state", "journal.jsonl")}
	if entries, err := f.Read(); err != nil || len(entries) != 0 {
		t.Fatalf("no file: %v, %v", entries, err)
	}
	for i, verb := range []lifecycle.Verb{lifecycle.Start, lifecycle.Stop} {
		if err := f.Append(entry(int64(i+1), verb, "")); err != nil {
			t.Fatal(err)
		}
	}
	info, err := os.Stat(f.Path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	// What a crash has left is no entry, and does no harm.
	file, err := os.OpenFile(f.Path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString("{\"id\":\"3\n"); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	entries, err := f.Read()
	if err != nil || len(entries) != 2 || entries[1].Verb != lifecycle.Stop || entries[1].ID != "2000000000" {
		t.Errorf("%+v, %v", entries, err)
	}
}

func TestFileIsBounded(t *testing.T) {
	f := File{filepath.Join(t.TempDir(), "journal.jsonl")}
	large := entry(1, lifecycle.Start, "")
	for range 8000 {
		large.Machines = append(large.Machines, Machine{Namespace: "namespace", Name: strings.Repeat("n", 60)})
	}
	for i := range 10 {
		e := entry(int64(i), lifecycle.Stop, "")
		if i%3 == 0 {
			e.Machines = large.Machines
		}
		if err := f.Append(e); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(f.Path); err != nil || info.Size() > 4*maxSize {
			t.Fatalf("%d bytes, %v", info.Size(), err)
		}
		entries, err := f.Read()
		if err != nil || entries[len(entries)-1].Time.Unix() != int64(i) {
			t.Fatalf("entry %d is not the last: %v", i, err)
		}
	}
}

func TestNewest(t *testing.T) {
	for _, test := range []struct {
		data string
		most int
		want string
	}{
		{"a\nbb\nccc\n", 100, "a\nbb\nccc\n"},
		{"a\nbb\nccc\n", 6, "ccc\n"},
		{"a\nbb\nccc\n", 7, "bb\nccc\n"},
		{"a\nbb\nccc\n", 1, "ccc\n"},
		{"ccc\n", 1, "ccc\n"},
	} {
		if got := string(newest([]byte(test.data), test.most)); got != test.want {
			t.Errorf("%q in %d: %q, want %q", test.data, test.most, got, test.want)
		}
	}
}

func TestLast(t *testing.T) {
	number := func(entries ...Entry) []Entry {
		for i := range entries {
			entries[i].ID = entries[i].Time.String()
		}
		return entries
	}
	at := func(n int64) string { return time.Unix(n, 0).String() }
	elsewhere := entry(9, lifecycle.Delete, "")
	elsewhere.Server = "https://there"
	for name, test := range map[string]struct {
		entries []Entry
		want    int64
	}{
		"newest":          {number(entry(1, lifecycle.Start, ""), entry(2, lifecycle.Stop, "")), 2},
		"of this cluster": {number(entry(1, lifecycle.Start, ""), elsewhere), 1},
		"walks back": {
			number(entry(1, lifecycle.Start, ""), entry(2, lifecycle.Stop, ""), entry(3, lifecycle.Start, at(2))), 1,
		},
		"after an undo": {
			number(entry(1, lifecycle.Start, ""), entry(2, lifecycle.Stop, at(1)), entry(3, lifecycle.Pause, "")), 3,
		},
		"nothing left": {number(entry(1, lifecycle.Start, ""), entry(2, lifecycle.Stop, at(1))), 0},
	} {
		got, ok := Last(test.entries, server)
		if ok != (test.want != 0) || ok && got.Time.Unix() != test.want {
			t.Errorf("%s: %v %v, want %d", name, got.Time.Unix(), ok, test.want)
		}
	}
}

// A machine of an entry is followed through the renames after it, of its cluster and its namespace.
func TestRenamedTo(t *testing.T) {
	renamed := func(at int64, name, to string) Entry {
		e := entry(at, lifecycle.Rename, "")
		e.ID, e.Machines = strconv.FormatInt(at, 10), []Machine{{Namespace: "ns", Name: name, RenamedTo: to}}
		return e
	}
	before, stop, elsewhere := renamed(1, "vm", "early"), entry(2, lifecycle.Stop, ""), renamed(3, "vm", "far")
	stop.ID, elsewhere.Server = "2", "https://there"
	first, other, second := renamed(4, "vm", "web"), renamed(5, "other", "vm"), renamed(6, "web", "shop")
	entries := []Entry{before, stop, elsewhere, first, other, second}
	for name, test := range map[string]struct {
		entries []Entry
		of      Entry
		want    string
	}{
		"twice":    {entries, stop, "shop"},
		"a rename": {entries, first, "shop"},
		"the last": {entries, second, ""},
		"never":    {entries[:3], stop, ""},
		"once":     {entries[:4], stop, "web"},
	} {
		if got := RenamedTo(test.entries, test.of, test.of.Machines[0]); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestFind(t *testing.T) {
	entries := []Entry{
		entry(1, lifecycle.Start, ""), entry(2, lifecycle.Stop, ""), entry(3, lifecycle.Start, "2"),
		entry(4, lifecycle.Delete, ""),
	}
	for i := range entries {
		entries[i].ID = strconv.Itoa(i + 1)
	}
	elsewhere := entry(5, lifecycle.Stop, "")
	elsewhere.ID, elsewhere.Server = "5", "https://there"
	entries = append(entries, elsewhere)
	for id, want := range map[string]Listed{
		"1": {Entry: entries[0]},
		"2": {Entry: entries[1], Undone: true},
		"3": {Entry: entries[2], Irreversible: "it is an undo itself"},
		"4": {Entry: entries[3], Irreversible: "what is deleted is gone; create it again from its manifest"},
		"5": {}, "9": {},
	} {
		got, ok := Find(entries, server, id)
		if ok != (want.ID != "") || got.ID != want.ID || got.Undone != want.Undone ||
			got.Irreversible != want.Irreversible {
			t.Errorf("%s: %+v, %v; want %+v", id, got, ok, want)
		}
	}
}

// A verb of no machine is named by its command line; one that could be undone did not come to its end.
func TestWithoutMachines(t *testing.T) {
	for _, test := range []struct {
		entry     Entry
		text, why string
	}{
		{
			Entry{Verb: "scale", Arguments: []string{"vmpool/p"}},
			"scale of vmpool/p",
			"which machines there were is not kept; scale it again",
		},
		{Entry{Verb: "install"}, "install", "uninstall removes what it installed"},
		{
			Entry{Verb: lifecycle.Rename, Arguments: []string{"web", "shop"}},
			"rename of web shop",
			"it did not come to its end",
		},
		{entry(1, lifecycle.Stop, ""), "stop of VM ns/vm", ""},
	} {
		if text, why := test.entry.String(), test.entry.Irreversible(); text != test.text || why != test.why {
			t.Errorf("%q, %q; want %q, %q", text, why, test.text, test.why)
		}
	}
	scaled := []Entry{entry(1, lifecycle.Start, ""), {Time: time.Unix(2, 0), Server: server, Verb: "scale"}}
	scaled[0].ID, scaled[1].ID = "1", "2"
	if last, ok := Last(scaled, server); !ok || last.Verb != "scale" {
		t.Errorf("%+v is passed over", scaled[1])
	}
}

func vm(uid types.UID, strategy v1.VirtualMachineRunStrategy) *v1.VirtualMachine {
	return &v1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{UID: uid}, Spec: v1.VirtualMachineSpec{RunStrategy: &strategy},
	}
}

func vmi(uid types.UID, conditions ...v1.VirtualMachineInstanceConditionType) *v1.VirtualMachineInstance {
	out := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{UID: uid}}
	out.Status.Phase = v1.Running
	for _, c := range conditions {
		out.Status.Conditions = append(out.Status.Conditions,
			v1.VirtualMachineInstanceCondition{Type: c, Status: corev1.ConditionTrue})
	}
	return out
}

// A restore is taken back while it is the last one of its VM, and nothing runs.
func TestPlanRestore(t *testing.T) {
	restored := func(by string, in *string) *v1.VirtualMachine {
		out := vm("u", v1.RunStrategyHalted)
		out.Annotations = map[string]string{"restore.kubevirt.io/lastRestoreUID": by}
		out.Status.RestoreInProgress = in
		return out
	}
	restore := func(kind snapshotv1beta1.ConditionType, status corev1.ConditionStatus, reason string,
	) *snapshotv1beta1.VirtualMachineRestore {
		return &snapshotv1beta1.VirtualMachineRestore{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "r"},
			Status: &snapshotv1beta1.VirtualMachineRestoreStatus{
				Complete:   new(false),
				Conditions: []snapshotv1beta1.Condition{{Type: kind, Status: status, Reason: reason}},
			},
		}
	}
	complete := restore("Progressing", "False", "Operation complete")
	complete.Status.Complete = new(true)
	m := Machine{Namespace: "ns", Name: "vm", UID: "u", Restore: "r"}
	for name, test := range map[string]struct {
		verb lifecycle.Verb
		now  State
		want string
	}{
		"last":      {lifecycle.RestoreKeep, State{VM: restored("r-uid", nil)}, ""},
		"under way": {lifecycle.RestoreKeep, State{VM: restored("", new("r"))}, "restore r of it is not done"},
		"waits": {
			lifecycle.RestoreKeep,
			State{
				VM: restored("former-uid", nil), VMI: vmi("i"), Restore: restore("Progressing", "False", "the VM runs"),
			},
			"restore r is still under way (InProgress: the VM runs); wait until it is complete, " +
				"or take it back with `kubectl delete vmrestore r -n ns`",
		},
		"failed": {
			lifecycle.RestoreKeep,
			State{VM: restored("former-uid", nil), Restore: restore("Failure", "True", "no room")},
			"restore ns/r failed: no room",
		},
		"complete": {lifecycle.RestoreKeep, State{VM: restored("r-uid", nil), Restore: complete}, ""},
		"another": {
			lifecycle.RestoreKeep,
			State{VM: restored("other-uid", nil), Restore: complete},
			"its spec is not that of restore r: it was restored again since",
		},
		"restored again": {
			lifecycle.RestoreKeep,
			State{VM: restored("other-uid", nil)},
			"its spec is not that of restore r: that is deleted, and was not complete, or it was restored again since",
		},
		"runs": {
			lifecycle.RestoreKeep,
			State{VM: restored("r-uid", nil), VMI: vmi("i")},
			"it has an instance; stop it first",
		},
		"gone":         {lifecycle.RestoreKeep, State{}, "it does not exist any more"},
		"nothing kept": {lifecycle.Restore, State{VM: restored("r-uid", nil)}, "the spec that it replaced was not"},
	} {
		if got := Plan(test.verb, m, test.now).Refusal; !strings.HasPrefix(got, test.want) ||
			test.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestPlan(t *testing.T) {
	const halted, always, manual, once = v1.RunStrategyHalted, v1.RunStrategyAlways, v1.RunStrategyManual,
		v1.RunStrategyOnce
	machine := func(before v1.VirtualMachineRunStrategy) Machine {
		return Machine{UID: "u", InstanceUID: "i", Before: before}
	}
	for _, test := range []struct {
		name string
		verb lifecycle.Verb
		m    Machine
		now  State
		want string
	}{
		{"start", lifecycle.Start, machine(halted), State{VM: vm("u", always), VMI: vmi("i")}, ""},
		{"start that has not begun", lifecycle.Start, machine(halted), State{VM: vm("u", always)}, ""},
		{"start, Manual", lifecycle.Start, machine(manual), State{VM: vm("u", manual), VMI: vmi("i")}, ""},
		{"start, ended", lifecycle.Start, machine(manual), State{VM: vm("u", manual)}, "it is not running any more"},
		{
			"start, halted", lifecycle.Start, machine(halted),
			State{VM: vm("u", halted)},
			"its run strategy was changed since: it is Halted, not Always",
		},
		{"stop", lifecycle.Stop, machine(always), State{VM: vm("u", halted)}, ""},
		{"stop under way", lifecycle.Stop, machine(always), State{VM: vm("u", halted), VMI: vmi("i")}, ""},
		{
			"stop, Once", lifecycle.Stop, machine(once),
			State{VM: vm("u", halted)},
			"its run strategy was Once, and a start would make it Always; set spec.runStrategy to Once instead",
		},
		{
			"stop, started", lifecycle.Stop, machine(manual),
			State{VM: vm("u", manual), VMI: vmi("i")},
			"it is running again",
		},
		{"gone", lifecycle.Stop, machine(always), State{}, "it does not exist any more"},
		{
			"another", lifecycle.Stop, machine(always),
			State{VM: vm("x", halted)},
			"it was deleted since, and is another of the same name now",
		},
		{"pause", lifecycle.Pause, machine(""), State{VMI: vmi("i", v1.VirtualMachineInstancePaused)}, ""},
		{"pause, unpaused", lifecycle.Pause, machine(""), State{VMI: vmi("i")}, "it is not paused any more"},
		{
			"pause, restarted", lifecycle.Pause, machine(""),
			State{VMI: vmi("j", v1.VirtualMachineInstancePaused)},
			"it was started anew since",
		},
		{"pause, stopped", lifecycle.Pause, machine(""), State{VM: vm("u", halted)}, "it is not running any more"},
		{"unpause", lifecycle.Unpause, machine(""), State{VMI: vmi("i")}, ""},
		{
			"unpause, paused", lifecycle.Unpause, machine(""),
			State{VMI: vmi("i", v1.VirtualMachineInstancePaused)},
			"it is paused again",
		},
		{"rename", lifecycle.Rename, Machine{UID: "u", RenamedTo: "new"}, State{VM: vm("u", halted)}, ""},
		{
			"rename, runs", lifecycle.Rename,
			Machine{Namespace: "ns", UID: "u", RenamedTo: "new"},
			State{VM: vm("u", always), VMI: vmi("i")},
			"it has an instance; stop it first: `virtctl stop new -n ns`",
		},
		{
			"rename, another", lifecycle.Rename,
			Machine{UID: "u", RenamedTo: "new"},
			State{VM: vm("x", halted)},
			"it was deleted since, and is another of the same name now",
		},
		{
			"delete", lifecycle.Delete, machine(always),
			State{},
			"what is deleted is gone; create it again from its manifest",
		},
	} {
		if got := Plan(test.verb, test.m, test.now); got.Refusal != test.want {
			t.Errorf("%s: %q, want %q", test.name, got.Refusal, test.want)
		}
	}
}

func TestReverse(t *testing.T) {
	for _, verb := range []lifecycle.Verb{
		lifecycle.Start, lifecycle.Stop, lifecycle.Pause, lifecycle.Unpause, lifecycle.Rename,
	} {
		back, why := Reverse(verb)
		again, _ := Reverse(back)
		if why != "" || again != verb {
			t.Errorf("%s → %s → %s: %s", verb, back, again, why)
		}
	}
	var without []lifecycle.Verb
	for _, verb := range []lifecycle.Verb{
		lifecycle.Restart, lifecycle.Reset, lifecycle.SoftReboot, lifecycle.Migrate, lifecycle.MigrateCancel,
		lifecycle.EvacuateCancel, lifecycle.Delete, "later",
	} {
		if _, why := Reverse(verb); why == "" {
			without = append(without, verb)
		}
	}
	if len(without) > 0 {
		t.Errorf("no reason for %v", slices.Compact(without))
	}
}

package logs

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/names"
)

const (
	vms     = "/apis/kubevirt.io/v1/namespaces/ns/virtualmachines"
	vmis    = "/apis/kubevirt.io/v1/namespaces/ns/virtualmachineinstances"
	pods    = "/api/v1/namespaces/ns/pods"
	logPath = "/apis/subresources.kubevirt.io/v1/namespaces/ns/virtualmachineinstances/vm/log"
)

func instance(uid types.UID) v1.VirtualMachineInstance {
	return v1.VirtualMachineInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm", UID: uid},
		Status:     v1.VirtualMachineInstanceStatus{Phase: v1.Running},
	}
}

func running(t *testing.T, uid types.UID) *clienttest.API {
	t.Helper()
	api := clienttest.New(t)
	run(api, uid)
	return api
}

func run(api *clienttest.API, uid types.UID) {
	vm := v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm", UID: "vm"}}
	api.Put(vms+"/vm", vm)
	api.Put(vms, v1.VirtualMachineList{Items: []v1.VirtualMachine{vm}})
	api.Put(vmis+"/vm", instance(uid))
	api.Put(vmis, v1.VirtualMachineInstanceList{Items: []v1.VirtualMachineInstance{instance(uid)}})
}

// text answers a log.
func text(s string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, s) }
}

func TestGuestLog(t *testing.T) {
	api := running(t, "i")
	api.Put(logPath, text("one\ntwo\n"))
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	for _, test := range []struct {
		options Options
		want    string
	}{
		{Options{Source: Serial, Tail: -1}, "source=serial"},
		{Options{Source: QEMU, Tail: 0}, "source=qemu&tail=0"},
		{Options{Source: Serial, Tail: 7, Since: since}, "since=2026-01-02T02%3A04%3A05Z&source=serial&tail=7"},
	} {
		var out bytes.Buffer
		if err := Copy(t.Context(), api.Client(), "ns", "vm", test.options, &out); err != nil ||
			out.String() != "one\ntwo\n" {
			t.Errorf("%+v: %q, %v", test.options, out.String(), err)
		}
		asked := api.Asked("/log")
		if got := asked[len(asked)-1].URL.Query().Encode(); got != test.want {
			t.Errorf("%+v: asked %q, want %q", test.options, got, test.want)
		}
	}
}

// A log that is followed goes on after a break where it was, and begins anew with another instance.
func TestFollow(t *testing.T) {
	api := running(t, "first")
	long := strings.Repeat("x", 2*overlap) + "\n"
	lives := 0
	api.Put(logPath, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		lives++
		last, err := hex.DecodeString(r.Header.Get(names.HeaderLogResume))
		if err != nil {
			t.Error(err)
		}
		if strings.Contains(r.URL.RawQuery, "resume") {
			t.Errorf("what was read is in the address: %s", r.URL.RawQuery)
		}
		query := r.URL.Query()
		switch lives {
		case 1:
			if len(last) > 0 || query.Get("tail") != "3" || query.Get("follow") != "true" {
				t.Errorf("first: %q after %q", r.URL.RawQuery, last)
			}
			_, _ = io.WriteString(w, long)
		case 2:
			if string(last) != long[len(long)-overlap:] || query.Has("tail") {
				t.Errorf("after a break: %q after %q", r.URL.RawQuery, last)
			}
			_, _ = io.WriteString(w, "more\n")
			run(api, "second")
		case 3:
			if len(last) > 0 || query.Has("tail") {
				t.Errorf("another instance: %q after %q", r.URL.RawQuery, last)
			}
			_, _ = io.WriteString(w, "anew\n")
		default: // the machine is deleted
			for _, path := range []string{vms, vmis} {
				api.Put(path, map[string]any{"items": []any{}})
			}
			http.Error(w, "no", http.StatusServiceUnavailable)
		}
	}))
	var out bytes.Buffer
	err := Copy(t.Context(), api.Client(), "ns", "vm", Options{Source: Serial, Tail: 3, Follow: true}, &out)
	if err != nil || out.String() != long+"more\nanew\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// The log of a VM that does not run is waited for, and that is said once.
func TestFollowBeforeTheStart(t *testing.T) {
	api := clienttest.New(t)
	vm := v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vm", UID: "vm"}}
	api.Put(vms+"/vm", vm)
	api.Put(vms, v1.VirtualMachineList{Items: []v1.VirtualMachine{vm}})
	api.Put(vmis+"/vm", http.NotFoundHandler())
	api.Put(vmis, v1.VirtualMachineInstanceList{})
	api.Put(logPath, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "boots\n")
		for _, path := range []string{vms, vmis} { // the machine is deleted
			api.Put(path, map[string]any{"items": []any{}})
		}
	}))
	var said []string
	note := func(text string) {
		said = append(said, text)
		run(api, "first")
	}
	var out bytes.Buffer
	reading := Options{Source: Serial, Tail: -1, Follow: true, Note: note}
	err := Copy(t.Context(), api.Client(), "ns", "vm", reading, &out)
	if err != nil || out.String() != "boots\n" || len(said) != 1 || !strings.Contains(said[0], "ns/vm does not run") {
		t.Errorf("%q, %v, said %q", out.String(), err, said)
	}
}

// A log that is followed goes on when the API server was away.
func TestFollowOverAnOutage(t *testing.T) {
	api := running(t, "i")
	away := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		connection, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		connection.Close()
	})
	listed, lives := 0, 0
	api.Put(logPath, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if lives++; lives > 1 {
			_, _ = io.WriteString(w, "after\n")
			for _, path := range []string{vms, vmis} { // and then the machine is deleted
				api.Put(path, map[string]any{"items": []any{}})
			}
			return
		}
		_, _ = io.WriteString(w, "before\n")
		api.Put(vms, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if listed++; listed > 1 {
				run(api, "i")
			}
			away(w, r)
		}))
	}))
	var out bytes.Buffer
	err := Copy(t.Context(), api.Client(), "ns", "vm", Options{Source: Serial, Tail: -1, Follow: true}, &out)
	if err != nil || out.String() != "before\nafter\n" || listed == 0 {
		t.Errorf("%q, %v, %d times away", out.String(), err, listed)
	}

	gone := clienttest.New(t)
	gone.Put(vmis+"/vm", away)
	gone.Put(vms, away)
	if Copy(t.Context(), gone.Client(), "ns", "vm", Options{Source: Serial, Follow: true}, io.Discard) == nil {
		t.Error("a server that was never there is waited for")
	}
}

func TestNoLog(t *testing.T) {
	api := running(t, "i")
	for _, test := range []struct {
		what    string
		put     map[string]any
		options Options
		want    string
	}{
		{
			"may not",
			map[string]any{logPath: clienttest.Forbidden("log")},
			Options{Follow: true},
			"open the log of ns/vm: ",
		},
		{"has none", map[string]any{logPath: http.HandlerFunc(http.NotFound)}, Options{}, "open the log of ns/vm: "},
		{
			"no pod",
			map[string]any{pods: corev1.PodList{}},
			Options{Source: Launcher},
			"instance ns/vm has no launcher pod yet; see why with `virtctl why vm -n ns`",
		},
		{
			"stopped",
			map[string]any{vmis + "/vm": http.HandlerFunc(notFound)},
			Options{},
			"VM ns/vm does not run, and its logs are gone with its pod",
		},
		{"no VM", map[string]any{vms + "/vm": http.HandlerFunc(notFound)}, Options{}, "look at VM ns/vm: "},
	} {
		for path, answer := range test.put {
			api.Put(path, answer)
		}
		if test.options.Source == "" {
			test.options.Source = Serial
		}
		err := Copy(t.Context(), api.Client(), "ns", "vm", test.options, io.Discard)
		if err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.what, err, test.want)
		}
	}
}

func notFound(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusNotFound)
	fmt.Fprint(w,
		`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"not found","details":{"name":"vm"}}`)
}

// The launcher's log is that of the youngest pod that is the instance's; labels are anybody's to write.
func TestLauncherLog(t *testing.T) {
	api := running(t, "i")
	pod := func(name string, minute int) corev1.Pod {
		return corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, UID: types.UID(name), CreationTimestamp: metav1.Date(2026, 1, 1, 0, minute, 0, 0, time.UTC),
			},
		}
	}
	vmi := instance("i")
	vmi.Status.ActivePods = map[types.UID]string{"old": "", "new": "node1", "middle": ""}
	api.Put(vmis+"/vm", vmi)
	api.Put(pods, corev1.PodList{Items: []corev1.Pod{
		pod("old", 1), pod("new", 3), pod("middle", 2), pod("a tenant's", 4),
	}})
	api.Put(pods+"/new/log", text("launched\n"))
	var out bytes.Buffer
	o := Options{Source: Launcher, Tail: 5, Follow: true, Timestamps: true, Previous: true, Since: time.Unix(0, 0)}
	if err := Copy(t.Context(), api.Client(), "ns", "vm", o, &out); err != nil || out.String() != "launched\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
	const want = "container=compute&follow=true&previous=true&" +
		"sinceTime=1970-01-01T00%3A00%3A00Z&tailLines=5&timestamps=true"
	if got := api.Asked("/new/log")[0].URL.Query().Encode(); got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
	const launchers = "kubevirt.io/created-by=i," + names.LabelComponent + "=virt-launcher"
	if got := api.Asked("/pods")[0].URL.Query().Get("labelSelector"); got != launchers {
		t.Errorf("chose pods by %q", got)
	}
}

// A reader that has gone ends a log that is followed.
func TestReaderHasGone(t *testing.T) {
	api := running(t, "i")
	api.Put(logPath, text("one\n"))
	gone := errors.New("gone")
	err := Copy(t.Context(), api.Client(), "ns", "vm", Options{Source: Serial, Tail: -1, Follow: true}, broken{gone})
	if !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	api.Put(logPath, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		cancel()
		http.Error(w, "no", http.StatusServiceUnavailable)
	}))
	err = Copy(ctx, api.Client(), "ns", "vm", Options{Source: Serial, Tail: -1, Follow: true}, io.Discard)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

type broken struct{ err error }

func (b broken) Write([]byte) (int, error) { return 0, b.err }

// A log that began anew with the guest's move says so, unless nothing from before is wanted.
func TestElsewhere(t *testing.T) {
	moved := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	vmi := func(change func(*v1.VirtualMachineInstanceMigrationState)) *v1.VirtualMachineInstance {
		end := metav1.NewTime(moved)
		ms := &v1.VirtualMachineInstanceMigrationState{
			Completed: true, EndTimestamp: &end, SourceNode: "node1", TargetNode: "node2",
		}
		change(ms)
		out := &v1.VirtualMachineInstance{
			Status: v1.VirtualMachineInstanceStatus{NodeName: "node2", MigrationState: ms},
		}
		out.Namespace, out.Name = "ns", "web"
		return out
	}
	as := func(*v1.VirtualMachineInstanceMigrationState) {}
	const said = "ns/web moved from node1 to node2 at 2026-01-02T03:04:05Z; its log begins there"
	for name, c := range map[string]struct {
		vmi   *v1.VirtualMachineInstance
		since time.Time
		want  string
	}{
		"moved":        {vmi(as), time.Time{}, said},
		"since before": {vmi(as), moved.Add(-time.Hour), said},
		"since then":   {vmi(as), moved.Add(time.Hour), ""},
		"failed":       {vmi(func(ms *v1.VirtualMachineInstanceMigrationState) { ms.Failed = true }), time.Time{}, ""},
		"on its way": {
			vmi(func(ms *v1.VirtualMachineInstanceMigrationState) { ms.Completed, ms.EndTimestamp = false, nil }),
			time.Time{},
			"",
		},
		"never has moved": {&v1.VirtualMachineInstance{}, time.Time{}, ""},
	} {
		if got := Elsewhere(c.vmi, c.since); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

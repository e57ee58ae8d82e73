package nodestatus

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

func TestPatch(t *testing.T) {
	got, err := Patch(true, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		map[string]string{names.AnnotationHost: `{"kvm":true}`})
	want := `{"metadata":{"annotations":{"kubevirt.io/heartbeat":"\"2026-01-02T03:04:05Z\"","virtkit.io/host":"{\"kvm\":true}"},"labels":{"kubevirt.io/schedulable":"true"}}}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestRelabel(t *testing.T) {
	wanted := Wanted{Labels: map[string]string{"own/a": "b"}, Owned: []string{"own/"}}
	node := func(labels, annotations map[string]string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: annotations}}
	}
	for want, node := range map[string]*corev1.Node{
		`{"metadata":{"labels":{"own/a":"b","own/gone":null}}}`: node(map[string]string{"own/gone": "1", "other": "2"},
			nil),
		"": node(map[string]string{"own/a": "b", "other": "2"}, nil),
	} {
		if got, err := Relabel(node, wanted); err != nil || string(got) != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
	if got, err := Relabel(node(nil, map[string]string{v1.LabellerSkipNodeAnnotation: ""}), wanted); err != nil ||
		got != nil {
		t.Errorf("a node that is to be skipped: %s, %v", got, err)
	}
}

func TestHeartbeat(t *testing.T) {
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	fail := true
	client.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		if fail {
			fail = false
			return true, nil, errors.New("not now")
		}
		return false, nil, nil
	})
	ticks, waits := make(chan time.Time), make(chan time.Duration, 10)
	h := Heartbeat{
		Nodes: client.CoreV1().Nodes(), Name: "n", Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Now: time.Now,
		Labels: flagsOf("x"),
		Tick:   func(d time.Duration) <-chan time.Time { waits <- d; return ticks },
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := h.Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	})
	label := func() string {
		n, err := client.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return n.Labels[v1.NodeSchedulable]
	}
	if got := <-waits; got != retry {
		t.Errorf("after a failure it waits %s", got)
	}
	ticks <- time.Time{}
	if got := <-waits; got != Period || label() != "true" {
		t.Errorf("waits %s, schedulable=%s", got, label())
	}
	ticks <- time.Time{}
	<-waits
	patches := 0
	for _, action := range client.Actions() {
		if action.Matches("patch", "nodes") {
			patches++
		}
	}
	if patches != 4 { // one failed, two brought heartbeat and label, one the next heartbeat
		t.Errorf("%d patches", patches)
	}
	cancel()
	running.Wait()
	if label() != "false" {
		t.Errorf("after the end schedulable=%s", label())
	}
}

func TestKVMNeedsHardware(t *testing.T) {
	dir := t.TempDir()
	modules, device := filepath.Join(dir, "module"), filepath.Join(dir, "kvm")
	if err := os.MkdirAll(filepath.Join(modules, "kvm_pvm"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := KVM(device, modules, "amd64"); err == nil || !strings.Contains(err.Error(), "kvm_intel") {
		t.Errorf("kvm_pvm counts as hardware: %v", err)
	}
	if err := os.MkdirAll(filepath.Join(modules, "kvm_amd"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := KVM(device, modules, "amd64"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a device: %v", err)
	}
	if err := os.WriteFile(device, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := KVM(device, modules, "amd64"); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("a file counts as KVM: %v", err)
	}
}

func flagsOf(key string) Labels {
	return func() (Wanted, error) { return flags(map[string]bool{key: true}), nil }
}

// beating is a Heartbeat against a fake API server that answers patches as answer says, which may be nil.
func beating(t *testing.T, answer func(patch string) error) (h *Heartbeat, patches *[]string) {
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "7"}})
	patches = &[]string{}
	client.PrependReactor("patch", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		patch := string(action.(clienttesting.PatchAction).GetPatch())
		*patches = append(*patches, patch)
		if err := answer(patch); err != nil {
			return true, nil, err
		}
		return true, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", ResourceVersion: "7"}}, nil
	})
	return &Heartbeat{
		Nodes: client.CoreV1().Nodes(), Name: "n", Log: slog.New(slog.DiscardHandler), Now: time.Now,
		Address: "10.0.0.1",
	}, patches
}

// Each heartbeat says what the one before was answered with, and what depends on the node's state is written on
// condition of it.
func TestHeartbeatIsAcknowledged(t *testing.T) {
	var fails error
	h, patches := beating(t, func(patch string) error {
		if strings.Contains(patch, "resourceVersion") {
			return fails
		}
		return nil
	})
	var settled []string
	h.Settle = func(*corev1.Node) map[string]any { return map[string]any{"a": "b", "gone": nil} }
	h.Settled = func(n *corev1.Node) {
		if n == nil {
			settled = append(settled, "nobody knows")
			return
		}
		settled = append(settled, n.ResourceVersion)
	}
	for _, c := range []struct {
		fails, want error
	}{
		{nil, nil},
		{apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "n", errors.New("changed")), nil},
		{apierrors.NewTimeoutError("late", 1), errors.New("late")},
	} {
		fails = c.fails
		if err := h.patch(t.Context(), true); (err == nil) != (c.want == nil) {
			t.Errorf("%v: %v", c.fails, err)
		}
	}
	if got := strings.Join(settled, ", "); got != "7, nobody knows, nobody knows" {
		t.Errorf("settled: %s", got)
	}
	const change = `{"metadata":{"annotations":{"a":"b","gone":null},"resourceVersion":"7"}}`
	all := *patches
	if len(all) != 6 || all[1] != change || !strings.Contains(all[0], `"virtkit.io/heartbeat-taken":""`) ||
		!strings.Contains(all[2], `"virtkit.io/heartbeat-taken":"7"`) ||
		!strings.Contains(all[2], `"virtkit.io/handler-address":"10.0.0.1"`) {
		t.Errorf("%d patches: %s", len(all), strings.Join(all, "\n"))
	}
}

// Launchers are suspended when the API server knows it, and not before.
func TestFarewell(t *testing.T) {
	for _, c := range []struct {
		pause  string
		fails  error
		paused bool
	}{
		{"pod", nil, true},
		{"", nil, false},
		{"pod", errors.New("away"), false},
	} {
		h, patches := beating(t, func(string) error { return c.fails })
		paused := false
		h.Pause, h.Paused = func() string { return c.pause }, func() { paused = true }
		if err := h.farewell(t.Context()); (err == nil) != (c.fails == nil) || paused != c.paused {
			t.Errorf("%+v: paused %t, %v", c, paused, err)
		}
		patch := (*patches)[0]
		if strings.Contains(patch, `"virtkit.io/heartbeat-paused":"pod"`) != (c.pause != "") ||
			!strings.Contains(patch, `"kubevirt.io/schedulable":"false"`) {
			t.Errorf("%+v: %s", c, patch)
		}
	}
}

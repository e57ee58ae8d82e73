package node

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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

func TestPatch(t *testing.T) {
	got, err := Patch(true, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), map[string]string{names.AnnotationHost: `{"kvm":true}`})
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
		`{"metadata":{"labels":{"own/a":"b","own/gone":null}}}`: node(map[string]string{"own/gone": "1", "other": "2"}, nil),
		"": node(map[string]string{"own/a": "b", "other": "2"}, nil),
	} {
		if got, err := Relabel(node, wanted); err != nil || string(got) != want {
			t.Errorf("got %s, %v, want %s", got, err, want)
		}
	}
	if got, err := Relabel(node(nil, map[string]string{v1.LabellerSkipNodeAnnotation: ""}), wanted); err != nil || got != nil {
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

package jsonlog

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/klog/v2"
)

func decode(t *testing.T, b *bytes.Buffer) map[string]any {
	t.Helper()
	out := map[string]any{}
	if err := json.Unmarshal(b.Bytes(), &out); err != nil {
		t.Fatalf("%v in %q", err, b)
	}
	b.Reset()
	at, _ := out["timestamp"].(string)
	if _, err := time.Parse("2006-01-02T15:04:05.000000Z", at); err != nil {
		t.Error(err)
	}
	delete(out, "timestamp")
	if pos, _ := out["pos"].(string); !strings.HasPrefix(pos, "jsonlog_test.go:") {
		t.Errorf("pos is %v", out["pos"])
	}
	delete(out, "pos")
	return out
}

// A line has KubeVirt's keys, and values that people read.
func TestNew(t *testing.T) {
	var b bytes.Buffer
	log := New(&b, "virt-test", slog.LevelDebug)
	log.Warn("cannot do it", "err", errors.New("no"), "took", 1500*time.Millisecond, "level", "mine")
	want := map[string]any{
		"component": "virt-test", "level": "warning", "msg": "cannot do it", "err": "no", "took": "1.5s",
	}
	text := b.String()
	got := decode(t, &b)
	if !strings.Contains(text, `"level":"warning"`) {
		t.Errorf("no level in %s", text)
	}
	got["level"] = "warning" // the last of two counts
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for call, want := range map[string]func(string, ...any){"info": log.Debug, "error": log.Error} {
		want("x")
		if got := decode(t, &b); got["level"] != call {
			t.Errorf("level %v, want %s", got["level"], call)
		}
	}
}

// klog's lines are the component's, at klog's own verbosity.
func TestInstall(t *testing.T) {
	var b bytes.Buffer
	Install(&b, "virt-test")
	defer klog.ClearLogger()
	klog.V(1).InfoS("not asked for")
	klog.Background().V(1).Info("neither")
	if b.Len() > 0 {
		t.Fatalf("%s", &b)
	}
	klog.ErrorS(errors.New("no"), "cannot do it", "vmi", "a/b")
	want := map[string]any{"component": "virt-test", "level": "error", "msg": "cannot do it", "err": "no", "vmi": "a/b"}
	if diff := cmp.Diff(want, decode(t, &b)); diff != "" {
		t.Error(diff)
	}
	klog.Background().Info("by a logger")
	if got := decode(t, &b); got["msg"] != "by a logger" || got["level"] != "info" {
		t.Errorf("%v", got)
	}
}

package launcher

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/virtkit/virtkit/pkg/names"
)

// probed is a launcher's options whose libvirtd is a script.
func probed(t *testing.T, script string) Options {
	t.Helper()
	dir := t.TempDir()
	o := Options{
		RunDir: filepath.Join(dir, "run"), Libvirtd: filepath.Join(dir, "libvirtd"), Emulator: "/usr/bin/qemu",
		Log: slog.New(slog.DiscardHandler),
	}
	if err := os.WriteFile(o.Libvirtd, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return o
}

const listening = `mkdir -p "$XDG_RUNTIME_DIR/libvirt"
: > "$XDG_RUNTIME_DIR/libvirt/libvirt-sock"
exec sleep 1000
`

func TestPrintCapabilities(t *testing.T) {
	o := probed(t, listening)
	want := map[string][]byte{"a.xml": []byte("<qemuCaps/>"), "b.xml": {0, 1, 2}}
	probe := func(_ context.Context, socket, emulator string) (string, error) {
		if emulator != o.Emulator || socket != filepath.Join(o.RunDir, names.SocketLibvirt) {
			t.Errorf("asked %s for %s", socket, emulator)
		}
		for name, data := range want {
			if err := os.WriteFile(filepath.Join(o.RunDir, names.CapabilityCacheDir, name), data, 0o600); err != nil {
				return "", err
			}
		}
		return "<domainCapabilities/>", nil
	}
	var out bytes.Buffer
	if err := printCapabilities(t.Context(), o, probe, &out); err != nil {
		t.Fatal(err)
	}
	var got map[string][]byte
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	want[names.DomainCapabilities] = []byte("<domainCapabilities/>")
	for name := range want {
		if !bytes.Equal(got[name], want[name]) {
			t.Errorf("%s: %q", name, got[name])
		}
	}
	if len(got) != len(want) {
		t.Errorf("printed %d files", len(got))
	}
}

func TestCapabilitiesCannotBePrinted(t *testing.T) {
	bad := func(context.Context, string, string) (string, error) { return "", errors.New("no such emulator") }
	good := func(context.Context, string, string) (string, error) { return "", nil }
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for name, test := range map[string]struct {
		script string
		probe  probeDaemon
		ctx    context.Context
		want   string
	}{
		"libvirtd dies":     {"exit 7", good, t.Context(), "libvirtd has ended: exit status 7"},
		"libvirtd is mute":  {"exec sleep 1000", good, short, context.DeadlineExceeded.Error()},
		"the probe fails":   {listening, bad, t.Context(), "no such emulator"},
		"nothing was found": {listening, good, t.Context(), "kept nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			err := printCapabilities(test.ctx, probed(t, test.script), test.probe, &out)
			if err == nil || !strings.Contains(err.Error(), test.want) || out.Len() > 0 {
				t.Errorf("%v, and printed %q", err, &out)
			}
		})
	}
}

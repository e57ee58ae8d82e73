package capabilities

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"testing"
	"time"

	"github.com/virtkit/virtkit/pkg/names"
)

// What libvirt says of domains is for virt-handler alone: a launcher gets libvirt's own files only.
func TestDomainCapabilitiesStayHere(t *testing.T) {
	cache, key := &Cache{Dir: t.TempDir()}, keyAt(t, 1000)
	files := map[string][]byte{
		cacheFile: []byte(description(1000, "")), names.DomainCapabilities: []byte("<domainCapabilities/>"),
	}
	if err := cache.Store(key, files); err != nil {
		t.Fatal(err)
	}
	if got, err := cache.Domain(key); err != nil || string(got) != "<domainCapabilities/>" {
		t.Errorf("%q, %v", got, err)
	}
	run := volume(t)
	if there, err := cache.Install(key, run); !there || err != nil {
		t.Fatalf("installed: %v, %v", there, err)
	}
	_, err := run.Stat(filepath.Join(names.CapabilityCacheDir, names.DomainCapabilities))
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the launcher has them: %v", err)
	}
}

func TestDomainNotYetIsNotNever(t *testing.T) {
	answers := make(chan error)
	p, _ := proberOf(t, func(ctx context.Context, key Key) (map[string][]byte, error) {
		select {
		case err := <-answers:
			files := found(key)
			files[names.DomainCapabilities] = []byte("<domainCapabilities/>")
			return files, err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	found, changed := make(chan struct{}), make(chan struct{})
	p.Found, p.Changed = func() { found <- struct{}{} }, changed
	if _, err := p.Domain(Variant{}); !errors.Is(err, ErrNotProbed) {
		t.Errorf("before a probe: %v", err)
	}
	start(t, p)
	wait := func() {
		t.Helper()
		select {
		case <-found:
		case <-time.After(30 * time.Second):
			t.Fatal("nobody is notified of the probe")
		}
	}
	answers <- errors.New("no QEMU")
	wait()
	if _, err := p.Domain(Variant{}); err == nil || errors.Is(err, ErrNotProbed) {
		t.Errorf("after a probe that failed: %v", err)
	}
	changed <- struct{}{}
	answers <- nil
	wait()
	if data, err := p.Domain(Variant{}); err != nil || len(data) == 0 {
		t.Errorf("after one that did not: %q, %v", data, err)
	}
}

package capabilities

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// proberOf is a Prober of an image with a QEMU whose probe is the test's.
func proberOf(t *testing.T, probe func(ctx context.Context, key Key) (map[string][]byte, error)) (*Prober, Key) {
	t.Helper()
	p := &Prober{
		Cache: &Cache{Dir: t.TempDir()}, Root: t.TempDir(), Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Variants: func() []Variant { return []Variant{{}} },
	}
	if err := os.MkdirAll(filepath.Join(p.Root, "usr/bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(p.Root, "usr/bin/qemu-system-x86_64"), []byte("QEMU"), 0o755); err != nil {
		t.Fatal(err)
	}
	key, err := NewKey(Variant{}, p.stat)
	if err != nil {
		t.Fatal(err)
	}
	p.Probe = func(ctx context.Context, _ Variant) (map[string][]byte, error) { return probe(ctx, key) }
	return p, key
}

func found(key Key) map[string][]byte {
	return map[string][]byte{cacheFile: []byte(description(key.ctimes[0], ""))}
}

// start runs a Prober until the test ends.
func start(t *testing.T, p *Prober) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// The first guest of a node waits for the probe that is under way, which takes no longer than its own would.
func TestLauncherWaitsForProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		probes := 0
		p, key := proberOf(t, func(_ context.Context, key Key) (map[string][]byte, error) {
			probes++
			time.Sleep(6 * time.Second) // of the bubble
			return found(key), nil
		})
		began := time.Now()
		p.Wait(t.Context(), key) // nothing is under way
		(*Prober)(nil).Wait(t.Context(), key)
		if waited := time.Since(began); waited != 0 {
			t.Errorf("waited %v for nothing", waited)
		}
		changed := make(chan struct{})
		p.Changed = changed
		start(t, p)
		synctest.Wait()
		other, err := NewKey(Variant{KVM: true}, p.stat)
		if err != nil {
			t.Fatal(err)
		}
		p.Wait(t.Context(), other)
		if waited := time.Since(began); waited != 0 {
			t.Errorf("waited %v for another variant's", waited)
		}
		p.Wait(t.Context(), key)
		if waited := time.Since(began); waited != 6*time.Second {
			t.Errorf("waited %v", waited)
		}
		if there, err := p.Cache.Install(key, volume(t)); !there || err != nil {
			t.Errorf("installed: %v, %v", there, err)
		}
		changed <- struct{}{}
		synctest.Wait()
		if probes != 1 {
			t.Errorf("%d probes", probes)
		}
	})
}

func TestLauncherDoesNotWaitForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, key := proberOf(t, func(ctx context.Context, _ Key) (map[string][]byte, error) {
			<-ctx.Done() // it hangs
			return nil, ctx.Err()
		})
		start(t, p)
		synctest.Wait()
		began := time.Now()
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		p.Wait(cancelled, key)
		if waited := time.Since(began); waited != 0 {
			t.Errorf("waited %v although it was to end", waited)
		}
		p.Wait(t.Context(), key)
		if waited := time.Since(began); waited != patience {
			t.Errorf("waited %v, want %v", waited, patience)
		}
		time.Sleep(probeTimeout + retryFirst) // the second one is under way
		synctest.Wait()
		began = time.Now()
		p.Wait(t.Context(), key)
		if waited := time.Since(began); waited != 0 {
			t.Errorf("waited %v for a probe that failed before", waited)
		}
	})
}

// A probe that failed, as on a node that is still booting, is tried again.
func TestProbeIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var probes atomic.Int32
		p, key := proberOf(t, func(_ context.Context, key Key) (map[string][]byte, error) {
			switch probes.Add(1) {
			case 1:
				return nil, errors.New("no memory")
			case 2:
				return map[string][]byte{cacheFile: []byte(description(1, ""))}, nil // of another QEMU
			}
			return found(key), nil
		})
		start(t, p)
		for range 3 {
			synctest.Wait()
			time.Sleep(2 * retryFirst)
		}
		if has, err := p.Cache.Has(key); !has || err != nil || probes.Load() != 3 {
			t.Errorf("after %d probes: %v, %v", probes.Load(), has, err)
		}
	})
}

// A restart of virt-handler finds what the one before it has found.
func TestProbeOnceABoot(t *testing.T) {
	p, key := proberOf(t, func(context.Context, Key) (map[string][]byte, error) {
		t.Error("probed again")
		return nil, errors.New("not to be asked")
	})
	if err := p.Cache.Store(key, found(key)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	p.Variants = func() []Variant { cancel(); return []Variant{{}} }
	if err := p.Run(ctx); err != nil {
		t.Fatal(err)
	}
}

// The key is of the image's own files, wherever its links lead outside of it.
func TestStatStaysInTheImage(t *testing.T) {
	p, _ := proberOf(t, nil)
	libexec := filepath.Join(p.Root, "usr/libexec")
	if err := os.Mkdir(libexec, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/usr/bin/qemu-system-x86_64", filepath.Join(libexec, "qemu-kvm")); err != nil {
		t.Fatal(err)
	}
	stat, err := p.stat("/usr/libexec/qemu-kvm")
	if err != nil || stat.Size != int64(len("QEMU")) {
		t.Errorf("%d bytes, %v", stat.Size, err)
	}
	if _, err := p.stat("/usr/bin/qemu-system-aarch64"); !errors.Is(err, unix.ENOENT) {
		t.Errorf("what the image lacks: %v", err)
	}
	p.Root = filepath.Join(p.Root, "nowhere")
	if _, err := NewKey(Variant{}, p.stat); err == nil || errors.Is(err, unix.ENOENT) {
		t.Errorf("no image at all: %v", err)
	}
}

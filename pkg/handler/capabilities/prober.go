package capabilities

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/waits"
)

const (
	// probeTimeout bounds a probe. It takes a second of an idle processor; a node that has just booted has none.
	probeTimeout = 2 * time.Minute
	// patience is the time after the beginning of a probe for which launchers wait for it.
	patience = 30 * time.Second
	// retryFirst and retryMost are the pauses after probes that failed.
	retryFirst, retryMost = time.Minute, 30 * time.Minute
)

// Prober fills a node's cache with the capabilities of the launcher's image, which is mounted on the node.
type Prober struct {
	Cache *Cache
	// Root is the mount point of the image.
	Root string
	// Variants are the variants of the node's launchers; Changed says that they may have changed.
	Variants func() []Variant
	Changed  <-chan struct{}
	// Probe finds out what a variant can do and returns the files in which libvirt caches that.
	Probe func(ctx context.Context, v Variant) (map[string][]byte, error)
	Log   *slog.Logger
	// Found, unless it is nil, is called after each probe, whether it failed or not.
	Found func()

	mu sync.Mutex
	// failed are the keys whose last probe has failed.
	failed map[string]bool
	// running is the probe under way, nil when there is none.
	running *attempt
}

// attempt is one probe.
type attempt struct {
	key   Key
	began time.Time
	done  chan struct{}
}

// Run probes missing variants, and failed ones again after a while, until ctx ends.
func (p *Prober) Run(ctx context.Context) error {
	longer := waits.Doubling(retryFirst, retryMost)
	pause := longer()
	for ctx.Err() == nil {
		var retry <-chan time.Time
		for _, v := range p.Variants() {
			key, err := NewKey(v, p.stat)
			if err == nil {
				err = p.fill(ctx, key, v, !p.hasFailed(key))
			}
			if ctx.Err() != nil {
				continue
			}
			p.note(key, err)
			if err == nil {
				continue
			}
			p.Log.Warn("QEMU's capabilities are not known ahead: guests start slower",
				"kvm", v.KVM, "sev", v.SEV, "again", pause, "err", err)
			retry = time.After(pause)
		}
		select {
		case <-ctx.Done():
		case <-p.Changed:
		case <-retry:
			pause = longer()
		}
	}
	return nil
}

// fill probes a variant unless that was done since the node booted. Launchers that start meanwhile wait if they may.
func (p *Prober) fill(ctx context.Context, key Key, v Variant, wait bool) error {
	if has, err := p.Cache.Has(key); has || err != nil {
		return err
	}
	began := time.Now()
	if wait {
		attempt := &attempt{key: key, began: began, done: make(chan struct{})}
		p.mu.Lock()
		p.running = attempt
		p.mu.Unlock()
		defer func() {
			p.mu.Lock()
			p.running = nil
			p.mu.Unlock()
			close(attempt.done)
		}()
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	files, err := p.Probe(ctx, v)
	if err != nil {
		return err
	}
	if err := p.Cache.Store(key, files); err != nil {
		return err
	}
	p.Log.Info("QEMU's capabilities are known", "kvm", v.KVM, "sev", v.SEV, "took", time.Since(began))
	return nil
}

// note remembers how a probe went, and lets it be known.
func (p *Prober) note(key Key, err error) {
	p.mu.Lock()
	if p.failed == nil {
		p.failed = map[string]bool{}
	}
	p.failed[key.hash] = err != nil
	p.mu.Unlock()
	if p.Found != nil {
		p.Found()
	}
}

func (p *Prober) hasFailed(key Key) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed[key.hash]
}

// ErrNotProbed says that there has been no probe yet.
var ErrNotProbed = errors.New("QEMU has not been probed yet")

// Domain returns libvirt's domain capabilities of a variant: with ErrNotProbed they may come, with any other error not
// soon.
func (p *Prober) Domain(v Variant) ([]byte, error) {
	key, err := NewKey(v, p.stat)
	if err != nil {
		return nil, err
	}
	has, err := p.Cache.Has(key)
	switch {
	case err != nil:
		return nil, err
	case has:
		return p.Cache.Domain(key)
	case p.hasFailed(key):
		return nil, errors.New("the probe of QEMU has failed")
	}
	return nil, ErrNotProbed
}

// Wait waits for a probe for launchers of a key, if one is under way. A launcher that did not wait would begin the same
// work now, beside the probe, so waiting is faster, whenever it begins; only a probe that takes far longer than it
// should is left alone, and one of a variant that failed before is not waited for at all. A nil Prober has none.
func (p *Prober) Wait(ctx context.Context, key Key) {
	if p == nil {
		return
	}
	p.mu.Lock()
	running := p.running
	p.mu.Unlock()
	if running == nil || running.key.hash != key.hash {
		return
	}
	ctx, cancel := context.WithDeadline(ctx, running.began.Add(patience))
	defer cancel()
	select {
	case <-running.done:
	case <-ctx.Done():
	}
}

// stat looks at a file of the image as a process there does: links do not lead out of the image.
func (p *Prober) stat(name string) (unix.Stat_t, error) {
	var stat unix.Stat_t
	root, err := unix.Open(p.Root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		// Not an error that says that the image has no such file.
		return stat, fmt.Errorf("open the launcher's image at %s: %s", p.Root, err)
	}
	defer unix.Close(root)
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	fd, err := unix.Openat2(root, name, &how)
	if err != nil {
		return stat, &os.PathError{Op: "look at", Path: filepath.Join(p.Root, name), Err: err}
	}
	defer unix.Close(fd)
	if err := unix.Fstat(fd, &stat); err != nil {
		return stat, &os.PathError{Op: "look at", Path: filepath.Join(p.Root, name), Err: err}
	}
	return stat, nil
}

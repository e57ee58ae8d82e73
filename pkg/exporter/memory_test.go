package exporter

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"
)

// heapPeak returns how many bytes of heap something needs at most beside what there was, with the limits of the server.
func heapPeak(t *testing.T, do func()) int64 {
	t.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(collectAt))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(memoryLimit))
	runtime.GC()
	heap := func() int64 {
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		metrics.Read(sample)
		return int64(sample[0].Value.Uint64())
	}
	before, most := heap(), int64(0)
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		ticker := time.NewTicker(time.Millisecond)
		defer ticker.Stop()
		for ctx.Err() == nil {
			most = max(most, heap())
			<-ticker.C
		}
	})
	do()
	cancel()
	watching.Wait()
	return most - before
}

// A sparse disk of 4 TiB, the largest that is served, is served in all formats by a server that has less than the 64
// MiB that are its bound.
func TestMemory(t *testing.T) {
	const size, most = 4 << 40, 40 << 20
	path := filepath.Join(t.TempDir(), "disk")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(size); err != nil {
		t.Skipf("the file system has no such large files: %v", err)
	}
	data := make([]byte, 300<<10)
	for i := range int64(64) {
		_, _ = rand.Read(data[:100<<10]) // never fails
		if _, err := file.WriteAt(data, i*(size/64)+i*70_000); err != nil {
			t.Fatal(err)
		}
	}
	disk := &image{File: file, size: size}
	for name, serve := range map[string]func() (io.Reader, error){
		"qcow2": func() (io.Reader, error) {
			l, err := measure(t.Context(), file, size)
			if err != nil {
				return nil, err
			}
			return newQCOW2(l, disk), nil
		},
		"OVA": func() (io.Reader, error) {
			l, err := measureVMDK(t.Context(), file, size, "disk.vmdk", sha256.New())
			if err != nil {
				return nil, err
			}
			return newArchive([]piece{newVMDK(l, disk)}), nil
		},
	} {
		read := int64(0)
		var err error
		peak := heapPeak(t, func() {
			var r io.Reader
			if r, err = serve(); err == nil {
				read, err = io.Copy(io.Discard, struct{ io.Reader }{r})
			}
		})
		t.Logf("%s: %d MiB of heap, %d MiB are served", name, peak>>20, read>>20)
		if err != nil || peak > most || read < 64*100<<10 || read > 256<<20 {
			t.Errorf("%s: %d bytes of heap, %d bytes served: %v", name, peak, read, err)
		}
	}
}

// As many compressed downloads as there may be at once, of what cannot be compressed, need little memory, too.
func TestMemoryOfDownloads(t *testing.T) {
	e := newExport(t)
	noise := make([]byte, 24<<20)
	_, _ = rand.Read(noise)
	e.write("disk/disk.img", string(noise))
	file, err := os.Open(filepath.Join(e.disk, "disk.img"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	peak := heapPeak(t, func() {
		var all, begun sync.WaitGroup
		begun.Add(downloads)
		for range downloads {
			all.Go(func() {
				if err := compress(&together{begun: &begun}, file, 0, int64(len(noise))); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	})
	t.Logf("%d MiB of heap", peak>>20)
	if peak > 24<<20 {
		t.Errorf("%d bytes of heap", peak)
	}
}

// together takes what is written once all have begun to write.
type together struct {
	begun *sync.WaitGroup
	once  sync.Once
}

func (w *together) Write(p []byte) (int, error) {
	w.once.Do(func() {
		w.begun.Done()
		w.begun.Wait()
	})
	return len(p), nil
}

// What is known of a full disk of 4 TiB has room beside the rest of the server.
func TestWeights(t *testing.T) {
	const size = 4 << 40
	lengths := make([]uint32, size>>qcow2MaxBits)
	for i := range lengths {
		lengths[i] = uint32(i%3+1) << (qcow2MaxBits - 3)
	}
	l := newLayout(qcow2MaxBits, size, lengths)
	of := newVMDKLayout("disk", size)
	var full grainLengths
	for i := range full {
		full[i] = uint8(i%100 + 1)
	}
	for range of.tables() {
		of.close(&full)
	}
	for name, layout := range map[string]sized{"qcow2": l, "VMDK": of} {
		if weight := layout.weight(); weight > layoutRoom || weight < 8<<20 {
			t.Errorf("%s: %d bytes", name, weight)
		}
	}
	// So much is reserved for them before they are known.
	most, err := mostOfLayout(size)
	if err != nil || most < l.weight() || most > layoutRoom {
		t.Errorf("qcow2: %d bytes are reserved for %d: %v", most, l.weight(), err)
	}
	if most := mostOfVMDK(size); most < of.weight() || most > layoutRoom {
		t.Errorf("VMDK: %d bytes are reserved for %d", most, of.weight())
	}
	var all layouts
	disk, machine := &held{sized: l}, &held{sized: of}
	first, err := all.use(disk)
	if err != nil {
		t.Fatal(err)
	}
	second, err := all.use(disk)
	if err != nil {
		t.Errorf("the same once more: %v", err)
	}
	if _, err := all.use(machine); !errors.Is(err, errBusy) {
		t.Errorf("beside it: %v", err)
	}
	first()
	if _, err := all.use(machine); !errors.Is(err, errBusy) {
		t.Errorf("while another download has it: %v", err)
	}
	second()
	if _, err := all.use(machine); err != nil {
		t.Errorf("after it: %v", err)
	}
}

// A disk whose image has no room beside another's is refused for a while, before it is read, and what is known of
// another disk stays known.
func TestBusy(t *testing.T) {
	e := newExport(t)
	e.write("disk/disk.img", "a disk")
	h := e.Handler.(*handler)
	done, err := h.layouts.use(&held{sized: heavy{}})
	if err != nil {
		t.Fatal(err)
	}
	other := &held{sized: heavy{}, tag: "another disk"}
	h.layouts.keep(other)
	r := e.get(qcow2Path)
	if got := body(t, r); r.StatusCode != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" ||
		!strings.Contains(got, "try again later") {
		t.Errorf("%d %v: %s", r.StatusCode, r.Header, got)
	}
	if h.layouts.known(other.tag) != other {
		t.Error("it was read: another disk would be read again")
	}
	done()
	if r := e.get(qcow2Path); r.StatusCode != http.StatusOK {
		t.Errorf("after it: %d", r.StatusCode)
	}
	if h.layouts.weighs != 0 || len(h.layouts.used) > 0 {
		t.Errorf("%d bytes are not given back, %d are used", h.layouts.weighs, len(h.layouts.used))
	}
}

// A download that goes on while the connection before has not ended needs no room, and nothing is measured for it, also
// when another disk was measured since.
func TestResumedBesideItself(t *testing.T) {
	l := layouts{turn: make(chan struct{}, 1)}
	measured := 0
	get := func(tag string, of sized) (func(), error) {
		_, done, err := l.get(t.Context(), tag, of.weight(), func() (sized, error) {
			measured++
			return of, nil
		})
		return done, err
	}
	first, err := get("a", heavy{})
	if err != nil {
		t.Fatal(err)
	}
	l.keep(&held{sized: light{}, tag: "b"})
	again, err := get("a", heavy{})
	if err != nil || measured != 1 {
		t.Fatalf("%v, measured %d times", err, measured)
	}
	if _, err := get("c", light{}); !errors.Is(err, errBusy) || measured != 1 {
		t.Errorf("beside them: %v, measured %d times", err, measured)
	}
	first()
	again()
	if done, err := get("c", light{}); err != nil || measured != 2 {
		t.Errorf("after them: %v, measured %d times", err, measured)
	} else {
		done()
	}
	failing := errors.New("the disk cannot be read")
	_, _, err = l.get(t.Context(), "d", layoutRoom, func() (sized, error) { return nil, failing })
	if !errors.Is(err, failing) || l.weighs != 0 {
		t.Errorf("%v, %d bytes are not given back", err, l.weighs)
	}
}

// heavy takes all room, and light little of it.
type (
	heavy struct{}
	light struct{}
)

func (heavy) weight() int64 { return layoutRoom }
func (light) weight() int64 { return 1 }

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
	var all layouts
	first, err := all.use(l)
	if err != nil {
		t.Fatal(err)
	}
	second, err := all.use(l)
	if err != nil {
		t.Errorf("the same once more: %v", err)
	}
	if _, err := all.use(of); !errors.Is(err, errBusy) {
		t.Errorf("beside it: %v", err)
	}
	first()
	if _, err := all.use(of); !errors.Is(err, errBusy) {
		t.Errorf("while another download has it: %v", err)
	}
	second()
	if _, err := all.use(of); err != nil {
		t.Errorf("after it: %v", err)
	}
}

// A disk whose image has no room beside another's is refused for a while.
func TestBusy(t *testing.T) {
	e := newExport(t)
	e.write("disk/disk.img", "a disk")
	h := e.Handler.(*handler)
	done, err := h.layouts.use(heavy{})
	if err != nil {
		t.Fatal(err)
	}
	r := e.get(qcow2Path)
	if got := body(t, r); r.StatusCode != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" ||
		!strings.Contains(got, "try again later") {
		t.Errorf("%d %v: %s", r.StatusCode, r.Header, got)
	}
	done()
	if r := e.get(qcow2Path); r.StatusCode != http.StatusOK {
		t.Errorf("after it: %d", r.StatusCode)
	}
}

// heavy takes all room.
type heavy struct{}

func (heavy) weight() int64 { return layoutRoom }

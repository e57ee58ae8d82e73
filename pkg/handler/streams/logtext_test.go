package streams

import (
	"bytes"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/semaphore"
)

// textOf is a log on disk, with its buffer taken.
func textOf(t testing.TB, content []byte) *logText {
	t.Helper()
	name := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	text := &logText{of: f, room: semaphore.NewWeighted(chunk)}
	if !text.hold() {
		t.Fatal("no room")
	}
	t.Cleanup(func() { text.letGo(); f.Close() })
	return text
}

// lines is a log of about a size, whose lines have numbers.
func lines(size int) []byte {
	var out bytes.Buffer
	for n := 0; out.Len() < size; n++ {
		out.WriteString("line " + strconv.Itoa(n) + " of what a guest says\n")
	}
	return out.Bytes()
}

// Lines are counted and text is found wherever the edges of the pieces lie.
func TestLogText(t *testing.T) {
	for _, content := range [][]byte{
		nil, []byte("\n"), []byte("a"), []byte("a\nb"), []byte("\n\n\n"), lines(3*chunk + 17),
		bytes.Repeat([]byte{'x'}, 2*chunk+1),
	} {
		text, size := textOf(t, content), int64(len(content))
		split := strings.SplitAfter(string(bytes.TrimSuffix(content, []byte("\n"))), "\n")
		for _, n := range []int{0, 1, 2, 3, 700, len(split), len(split) + 1, 1 << 40} {
			want := size
			if n > 0 {
				want = size - int64(len(strings.Join(split[max(0, len(split)-n):], "")))
				if bytes.HasSuffix(content, []byte("\n")) {
					want--
				}
			}
			if got, err := text.lastLines(0, size, n); err != nil || got != want {
				t.Errorf("%.20q: the last %d lines are at %d, %v; want %d", content, n, got, err, want)
			}
		}
		for _, at := range []int{0, 1, chunk - 1, chunk, chunk + 1, 2*chunk - 3, len(content) - 9} {
			if at < 0 || at+9 > len(content) {
				continue
			}
			sought := content[at : at+9]
			want := int64(bytes.LastIndex(content, sought))
			if got, found, err := text.lastIndex(0, size, sought); err != nil || !found || got != want {
				t.Errorf("%q is at %d, %t, %v; want %d", sought, got, found, err, want)
			}
		}
	}
}

// What was sent before a log was cut is not sent again, and what is new is.
func TestLogTextCut(t *testing.T) {
	content := lines(4 * chunk)
	text := textOf(t, content)
	if err := text.seek(int64(len(content) - chunk)); err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	want := content[len(content)-chunk : len(content)-100]
	if err := text.send(&got, chunk-100); err != nil || !bytes.Equal(got.Bytes(), want) {
		t.Fatalf("%d bytes, %v", got.Len(), err)
	}
	kept := append(bytes.Clone(content[len(content)-3*chunk:]), "news\n"...)
	if _, err := text.of.WriteAt(kept, 0); err != nil {
		t.Fatal(err)
	}
	if err := text.of.Truncate(int64(len(kept))); err != nil {
		t.Fatal(err)
	}
	got.Reset()
	if err := text.send(&got, maxLog); err != nil || got.String() != string(content[len(content)-100:])+"news\n" {
		t.Errorf("%q, %v", got.String(), err)
	}
}

// Followers of long logs cost virt-handler next to nothing: neither while they follow, nor by what it takes to begin.
func TestFollowersAreCheap(t *testing.T) {
	const followers = 16
	s := newSetup(t)
	s.writeLog(string(lines(maxLog)))
	get := func() {
		response, err := http.Get(s.http.URL + guestPath + "log/serial?follow=true")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { response.Body.Close() })
		if n, err := io.CopyN(io.Discard, response.Body, maxLog); err != nil {
			t.Fatalf("%d bytes, %v", n, err)
		}
	}
	get() // what is made once
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range followers {
		get()
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / followers; each > 1<<20 {
		t.Errorf("%d KiB were allocated for each follower of a log of %d KiB", each>>10, maxLog>>10)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if each := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / followers; each > 256<<10 {
		t.Errorf("%d KiB are held for each follower", each>>10)
	}
}

// Two hundred followers of one log cost little while they are there, and give back all that they took when they leave:
// memory to the node, too.
func TestFollowersLeaveNothingBehind(t *testing.T) {
	const (
		followers = 200
		size      = 1 << 20
		// most is what each may cost while it follows, both ends of its connection together, and left what all may
		// leave behind; bytes.
		most, left = 256 << 10, 8 << 20
	)
	s := newSetup(t)
	content := lines(size)
	s.writeLog(string(content))
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	begin := func() io.ReadCloser {
		response, err := client.Get(s.http.URL + guestPath + "log/serial?follow=true")
		if err != nil {
			t.Error(err)
			return http.NoBody
		}
		if n, err := io.CopyN(io.Discard, response.Body, int64(len(content))); err != nil {
			t.Errorf("%d bytes, %v", n, err)
		}
		return response.Body
	}
	idle := runtime.NumGoroutine()
	begin().Close() // what is made once
	before := heldAfter(t, idle, math.MaxInt64)
	bodies := make([]io.ReadCloser, followers)
	var group sync.WaitGroup
	for i := range bodies {
		group.Go(func() { bodies[i] = begin() })
	}
	group.Wait()
	const news = "news\n"
	s.writeLog(news)
	for _, body := range bodies { // all follow
		got := make([]byte, len(news))
		if _, err := io.ReadFull(body, got); err != nil || string(got) != news {
			t.Fatalf("a follower read %q, %v", got, err)
		}
	}
	during := memoryHeld()
	if each := (during.bytes - before.bytes) / followers; each > most {
		t.Errorf("%d KiB are held for each follower", each>>10)
	}
	for _, body := range bodies {
		body.Close()
	}
	after := heldAfter(t, before.goroutines, before.bytes+left)
	t.Logf("held before %d KiB, with %d followers %d KiB, after them %d KiB",
		before.bytes>>10, followers, during.bytes>>10, after.bytes>>10)
	if !s.server.room.TryAcquire(maxHeld) {
		t.Error("room is still taken")
	}
}

// memory is what a process has at a time.
type memory struct {
	goroutines int
	bytes      int64 // that the node cannot give to others: heap and stacks, in use or not
}

// memoryHeld looks at this process after a collection.
func memoryHeld() memory {
	for range 2 { // a sync.Pool lets go at the second
		runtime.GC()
	}
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return memory{goroutines: runtime.NumGoroutine(), bytes: int64(m.HeapSys-m.HeapReleased) + int64(m.StackInuse)}
}

// heldAfter waits until the process has no more than so much, and fails after a while.
func heldAfter(t *testing.T, goroutines int, size int64) memory {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		held := memoryHeld()
		if held.goroutines <= goroutines && held.bytes <= size {
			return held
		}
		select {
		case <-deadline:
			t.Errorf("%d goroutines and %d KiB are left, want %d and %d KiB at most",
				held.goroutines, held.bytes>>10, goroutines, size>>10)
			return held
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// FuzzLogText compares the search in pieces with that in the whole.
func FuzzLogText(f *testing.F) {
	f.Add([]byte("one\ntwo\n"), []byte("two"), uint16(1), uint16(0))
	f.Add(lines(chunk+100), []byte("line 7 "), uint16(40), uint16(9))
	f.Add([]byte{}, []byte("x"), uint16(0), uint16(3))
	f.Add([]byte("\n\n"), []byte("\n"), uint16(2), uint16(1))
	f.Fuzz(func(t *testing.T, content, sought []byte, n, from uint16) {
		if len(sought) == 0 || len(sought) > overlap {
			return
		}
		content = slices.Concat(content, bytes.Repeat([]byte("z"), chunk-3), content) // so that there are edges
		text, size, begin := textOf(t, content), int64(len(content)), min(int64(from), int64(len(content)))
		want := int64(bytes.LastIndex(content[begin:], sought))
		got, found, err := text.lastIndex(begin, size, sought)
		if err != nil || found != (want >= 0) || found && got != begin+want {
			t.Errorf("%q is at %d, %t, %v; want %d", sought, got, found, err, want)
		}
		wantLine := begin
		trimmed := len(bytes.TrimSuffix(content[begin:], []byte("\n")))
		for at, left := trimmed, n; left > 0; left-- {
			if at = bytes.LastIndexByte(content[begin:begin+int64(at)], '\n'); at < 0 {
				break
			}
			if left == 1 {
				wantLine = begin + int64(at) + 1
			}
		}
		if n == 0 {
			wantLine = size
		}
		if got, err := text.lastLines(begin, size, int(n)); err != nil || got != wantLine {
			t.Errorf("the last %d lines are at %d, %v; want %d", n, got, err, wantLine)
		}
	})
}

// FuzzSizeAt reads the offsets that a launcher has written beside its log.
func FuzzSizeAt(f *testing.F) {
	f.Add([]byte("1 2\n3 4\n"), int64(3))
	f.Add([]byte("1 2\n3 -4\n"), int64(9))
	f.Add([]byte("9223372036854775807 9223372036854775807\n"), int64(1<<62))
	f.Add([]byte("-1 5\nx\n"), int64(0))
	f.Add([]byte("1 99999999999999999999\n2"), int64(2))
	f.Fuzz(func(t *testing.T, offsets []byte, at int64) {
		size := sizeAt(offsets, time.Unix(at, 0))
		if size < 0 {
			t.Errorf("%d", size)
		}
		// A line that is added cannot take back what the lines before it say of an earlier time.
		if at == math.MaxInt64 || !bytes.HasSuffix(offsets, []byte("\n")) {
			return
		}
		more := sizeAt(append(bytes.Clone(offsets), "9223372036854775807 7\n"...), time.Unix(at, 0))
		if more != size {
			t.Errorf("%d, and %d with a later line", size, more)
		}
	})
}

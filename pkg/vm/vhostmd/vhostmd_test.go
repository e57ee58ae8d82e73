package vhostmd

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

func report(t *testing.T) Report {
	t.Helper()
	return NewReport(Host{
		Name: "node1", Product: "QEMU 10.0.3", Sockets: 2, PageSize: 4096, Now: time.Unix(1000000000, 0),
		Stat: "cpu  1000 200 300 9999 5 0 1 0 0 0\ncpu0 500 100 150 5000 2 0 0 0 0 0\n",
		Meminfo: "MemTotal:       16000000 kB\nMemFree:         4000000 kB\nBuffers:          500000 kB\n" +
			"Cached:          2500000 kB\nSwapCached:        10000 kB\nSwapTotal:       1000000 kB\n" +
			"SwapFree:         900000 kB\n",
		VMStat: "pgpgin 7\npswpin 3\npswpout 5\n",
	}, Guest{CPUTime: 1500 * time.Millisecond, VCPUs: 2, Memory: 128 << 20})
}

func TestReport(t *testing.T) {
	got, err := report(t).XML()
	if err != nil {
		t.Fatal(err)
	}
	const name = "testdata/report.xml"
	if *update {
		if err := errors.Join(os.MkdirAll("testdata", 0o755),
			os.WriteFile(name, append(got, '\n'), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(got)+"\n", "\n")); diff != "" {
		t.Error(diff)
	}
	// A node that tells nothing has no zeros.
	bare, err := NewReport(Host{}, Guest{}).XML()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"FreePhysicalMemory", "PagedInMemory", "NumberOfPhysicalCPUs"} {
		if bytes.Contains(bare, []byte(name)) {
			t.Errorf("%s of a node that did not say:\n%s", name, bare)
		}
	}
}

// recorder keeps the disk as it was after each write.
type recorder struct {
	disk   []byte
	states []uint32 // whether it was busy
}

func (r *recorder) WriteAt(data []byte, at int64) (int, error) {
	n := copy(r.disk[at:], data)
	r.states = append(r.states, binary.BigEndian.Uint32(r.disk[4:]))
	return n, nil
}

func TestDisk(t *testing.T) {
	empty, err := Image(Report{})
	if err != nil || len(empty) != Size {
		t.Fatalf("%d bytes, %v", len(empty), err)
	}
	r := &recorder{disk: empty}
	if err := Update(r, report(t)); err != nil {
		t.Fatal(err)
	}
	want, err := Image(report(t))
	if err != nil {
		t.Fatal(err)
	}
	length := binary.BigEndian.Uint32(want[12:])
	if !bytes.Equal(r.disk[:headerSize+length], want[:headerSize+length]) {
		t.Error("updating gives another disk than making it")
	}
	if diff := cmp.Diff([]uint32{1, 1, 0}, r.states); diff != "" {
		t.Errorf("busy: %s", diff)
	}
	content, sum := want[headerSize:headerSize+length], uint32(0)
	for _, b := range content {
		sum += uint32(b)
	}
	if string(want[:4]) != "mvbd" || binary.BigEndian.Uint32(want[8:]) != sum ||
		!bytes.HasSuffix(content, []byte("</metrics>\n")) {
		t.Errorf("header %x", want[:16])
	}
}

func TestAnswer(t *testing.T) {
	ready := func() error { return nil }
	text, err := report(t).XML()
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		in, want string
		fails    error
	}{
		"request":         {in: "GET /metrics/XML\r\n\r\n", want: string(text) + "\n\n"},
		"with protocol":   {in: "GET /metrics/XML HTTP/1.1\n\n", want: string(text) + "\n\n"},
		"other path":      {in: "GET /metrics/JSON\n\n", want: refusal},
		"no empty line":   {in: "GET /metrics/XML\nGET /metrics/XML\n", want: refusal},
		"long":            {in: strings.Repeat("x", 100000) + "\n\n", want: refusal},
		"nothing":         {fails: io.EOF},
		"cut off":         {in: "GET /metrics", fails: io.EOF},
		"not available":   {in: "GET /metrics/XML\n\n", want: unavailable},
		"guest was ended": {in: "GET /metrics/XML\n\n", fails: os.ErrClosed},
	} {
		wait, read := ready, func() (Report, error) { return report(t), nil }
		if name == "not available" {
			read = func() (Report, error) { return Report{}, errors.New("no") }
		}
		if errors.Is(tc.fails, os.ErrClosed) {
			wait = func() error { return os.ErrClosed }
		}
		var out strings.Builder
		err := Answer(bufio.NewReader(strings.NewReader(tc.in)), &out, wait, read)
		if !errors.Is(err, tc.fails) || out.String() != tc.want {
			t.Errorf("%s: %q, %v", name, out.String(), err)
		}
	}
}

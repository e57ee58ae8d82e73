package vhostmd

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"testing"
)

// FuzzAnswer answers what a guest writes to its port until it has written all. Nothing that it writes makes an answer
// of another kind, or takes more memory than a line.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte("GET /metrics/XML\r\n\r\n"))
	f.Add([]byte("GET /metrics/XML HTTP/1.1\n\nGET /metrics/JSON\n\n"))
	f.Add([]byte("\n\n\n\n"))
	f.Add([]byte("GET /metrics/XML\nGET /metrics/XML\n"))
	f.Add(bytes.Repeat([]byte("GET /metrics/XML "), 1000))
	f.Add([]byte("GET /metrics/XML"))
	f.Add([]byte{0, 0xff, '\n', '\r', '\n'})
	f.Fuzz(func(t *testing.T, written []byte) {
		report := Report{Metrics: []Metric{{Type: "string", Context: forHost, Name: "HostName", Value: "node1"}}}
		text, err := report.XML()
		if err != nil {
			t.Fatal(err)
		}
		good := string(text) + "\n\n"
		in := bufio.NewReader(bytes.NewReader(written))
		lines := bytes.Count(written, []byte("\n"))
		for answers := 0; ; answers++ {
			var out bytes.Buffer
			err := Answer(in, &out, func() error { return nil }, func() (Report, error) { return report, nil })
			if err != nil {
				if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) || out.Len() > 0 {
					t.Errorf("%q, %v", out.String(), err)
				}
				return
			}
			if got := out.String(); got != good && got != refusal {
				t.Errorf("answer %q", got)
			}
			if answers > lines {
				t.Fatalf("%d answers to %d lines", answers, lines)
			}
		}
	})
}

// FuzzReport makes a report of what /proc says, whatever that is.
func FuzzReport(f *testing.F) {
	f.Add("cpu  1000 200 300 9999\n", "MemTotal: 16 kB\nMemFree: 4 kB\n", "pswpin 3\n")
	const most = "18446744073709551615"
	f.Add("cpu "+most+" 1 1\n", "MemTotal: 1\nMemFree: "+most+"\nBuffers: "+most+"\n", "pswpin "+most)
	f.Add("cpu x y z", ":", "\x00 1")
	f.Fuzz(func(t *testing.T, stat, meminfo, vmstat string) {
		report := NewReport(Host{Name: stat, Stat: stat, Meminfo: meminfo, VMStat: vmstat, PageSize: 4096}, Guest{})
		image, err := Image(report)
		if err == nil && len(image) != Size {
			t.Errorf("%d bytes", len(image))
		}
	})
}

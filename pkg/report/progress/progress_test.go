package progress

import (
	"testing"
	"time"
)

func TestProgress(t *testing.T) {
	for name, tc := range map[string]struct {
		p         Progress
		percent   int
		left      time.Duration
		ends      bool
		converges bool
	}{
		"nothing yet": {p: Progress{Mode: "PreCopy"}, converges: true},
		"halfway": {
			p: Progress{
				Mode: "PreCopy", TotalBytes: 100, RemainingBytes: 50, BandwidthBytesPerSecond: 30,
				DirtyBytesPerSecond: 5, Iteration: 2,
			},
			percent: 50, left: 2 * time.Second, ends: true, converges: true,
		},
		"too dirty": {
			p: Progress{
				Mode: "PreCopy", TotalBytes: 100, RemainingBytes: 10, BandwidthBytesPerSecond: 30,
				DirtyBytesPerSecond: 30, Iteration: 3,
			},
			percent: 90,
		},
		"post-copy": {
			p: Progress{
				Mode: "PostCopy", TotalBytes: 100, RemainingBytes: 30, BandwidthBytesPerSecond: 30,
				DirtyBytesPerSecond: 30, Iteration: 3,
			},
			percent: 70, left: time.Second, ends: true, converges: true,
		},
		"more than there": {p: Progress{Mode: "PreCopy", TotalBytes: 100, RemainingBytes: 300}, converges: true},
		"done": {
			p: Progress{Mode: "PreCopy", Done: true, TotalBytes: 100, RemainingBytes: 3}, percent: 100, ends: true,
			converges: true,
		},
		"no end": {
			p: Progress{
				Mode: "PostCopy", TotalBytes: 1 << 63, RemainingBytes: 1 << 63, BandwidthBytesPerSecond: 1,
			},
			converges: true,
		},
		"nothing moves": { // on a machine that is too busy, and the guest, too
			p: Progress{Mode: "PreCopy", TotalBytes: 100, RemainingBytes: 50, Iteration: 3}, percent: 50,
			converges: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.p.Percent(); got != tc.percent {
				t.Errorf("%d %%", got)
			}
			if got, ends := tc.p.Left(); got != tc.left || ends != tc.ends {
				t.Errorf("left %v %v", got, ends)
			}
			if got := tc.p.Converges(); got != tc.converges {
				t.Errorf("converges %v", got)
			}
			back, err := Parse(tc.p.String())
			if err != nil || *back != tc.p {
				t.Errorf("read back %+v, %v", back, err)
			}
		})
	}
	for text, fails := range map[string]bool{
		"":                  false,
		"x":                 true,
		`{"totalBytes":-1}`: true,
		`{"mode":"` + string(make([]byte, maxText)) + `"}`: true,
	} {
		if p, err := Parse(text); p != nil || (err != nil) != fails {
			t.Errorf("%.20q: %v, %v", text, p, err)
		}
	}
}

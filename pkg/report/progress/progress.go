// Package progress reports how far a migration is: the launcher that the guest leaves asks libvirt about once a second,
// its virt-handler writes it into an annotation of the VirtualMachineInstanceMigration (names.AnnotationProgress), and
// virtctl and the dashboard read it. Nothing depends on it: it may be late, or missing.
package progress

import (
	"encoding/json"
	"fmt"
	"math"
	"time"
)

// Progress is an account of a migration. The JSON is the annotation's.
type Progress struct {
	// Mode is how the guest moves: PreCopy, PostCopy, Paused (kubevirt.io/v1 MigrationMode).
	Mode string `json:"mode"`
	// Time is when this was known, and ElapsedSeconds how long the guest had been on its way.
	Time           time.Time `json:"time"`
	ElapsedSeconds float64   `json:"elapsedSeconds"`
	// TotalBytes is memory and disks together, RemainingBytes what is left of them. Memory that changes is copied
	// again, so ProcessedBytes may be more.
	TotalBytes     uint64 `json:"totalBytes"`
	ProcessedBytes uint64 `json:"processedBytes"`
	RemainingBytes uint64 `json:"remainingBytes"`
	// MemoryRemainingBytes and DiskRemainingBytes are its parts.
	MemoryRemainingBytes uint64 `json:"memoryRemainingBytes"`
	DiskRemainingBytes   uint64 `json:"diskRemainingBytes"`
	// BandwidthBytesPerSecond is how fast memory is copied, DirtyBytesPerSecond how fast the guest changes it.
	BandwidthBytesPerSecond uint64 `json:"bandwidthBytesPerSecond"`
	DirtyBytesPerSecond     uint64 `json:"dirtyBytesPerSecond"`
	// ThrottlePercent is how much of its time the guest is kept from running (auto-converge).
	ThrottlePercent uint32 `json:"throttlePercent"`
	// Iteration is the pass over the memory, from 1.
	Iteration uint64 `json:"iteration"`
	// ExpectedDowntimeMilliseconds is how long the guest would stand still if it moved now.
	ExpectedDowntimeMilliseconds int64 `json:"expectedDowntimeMilliseconds"`
	// DowntimeMilliseconds is how long it did, once it has moved; 0 while that is not known.
	DowntimeMilliseconds int64 `json:"downtimeMilliseconds,omitempty"`
	// Done: nothing is left to copy.
	Done bool `json:"done,omitempty"`
}

// maxText bounds an annotation that is read, bytes.
const maxText = 4 << 10

// Parse reads an annotation; nil when there is none.
func Parse(text string) (*Progress, error) {
	if text == "" {
		return nil, nil
	}
	if len(text) > maxText {
		return nil, fmt.Errorf("the progress has %d bytes", len(text))
	}
	p := &Progress{}
	if err := json.Unmarshal([]byte(text), p); err != nil {
		return nil, fmt.Errorf("read the progress: %w", err)
	}
	return p, nil
}

// String returns the annotation.
func (p *Progress) String() string {
	text, err := json.Marshal(p)
	if err != nil { // times beyond the year 9999 only
		return ""
	}
	return string(text)
}

// Percent returns how much of what there is to copy has been, 0 to 100; not how much of the time has gone.
func (p *Progress) Percent() int {
	switch {
	case p.Done:
		return 100
	case p.TotalBytes == 0:
		return 0
	case p.RemainingBytes >= p.TotalBytes:
		return 0
	}
	return int(100 * (float64(p.TotalBytes-p.RemainingBytes) / float64(p.TotalBytes)))
}

// Left returns how long the copying takes if it goes on so; false when it does not end so, or nothing is known.
func (p *Progress) Left() (time.Duration, bool) {
	if p.Done {
		return 0, true
	}
	rate := float64(p.BandwidthBytesPerSecond)
	if p.Mode == "PreCopy" {
		rate -= float64(p.DirtyBytesPerSecond)
	}
	if rate <= 0 {
		return 0, false
	}
	seconds := float64(p.RemainingBytes) / rate
	if seconds > math.MaxInt32 {
		return 0, false
	}
	return time.Duration(seconds * float64(time.Second)), true
}

// Converges reports whether memory is copied faster than the guest changes it.
func (p *Progress) Converges() bool {
	return p.Done || p.Mode != "PreCopy" || p.Iteration < 2 || p.DirtyBytesPerSecond == 0 ||
		p.DirtyBytesPerSecond < p.BandwidthBytesPerSecond
}

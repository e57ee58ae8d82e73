// Package pace measures how fast a transfer is, and how long the rest of it takes at that speed. Commands draw what it
// says as a line, the dashboard as a row.
package pace

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

const (
	// window is the time whose speed counts: a transfer that stalls is soon slow.
	window = 10 * time.Second
	// spacing is the least time between two samples.
	spacing = 500 * time.Millisecond
	// most bounds the time that is left and is worth saying.
	most = 100 * 24 * time.Hour
)

// Meter follows a transfer, file after file. Its methods may be called by several goroutines.
type Meter struct {
	now func() time.Time

	mu      sync.Mutex
	reading Reading
	samples []sample // of the window, the oldest first
}

type sample struct {
	at   time.Time
	done int64
}

// NewMeter returns a meter whose clock is now.
func NewMeter(now func() time.Time) *Meter { return &Meter{now: now} }

// Reading is how far a transfer is.
type Reading struct {
	// Name is what is transferred; empty when nothing was begun.
	Name string
	// Done and Total are bytes; a Total below 0 is not known.
	Done, Total int64
	// PerSecond is the speed of the last seconds, bytes per second; 0 while it is not known.
	PerSecond float64
	// Left is how long the rest takes at that speed; 0 where that is not known, or nothing is left.
	Left time.Duration
}

// Begin takes where a file begins: what was done before, until the transfer was cut off, is no speed.
func (m *Meter) Begin(name string, done, total int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.samples = nil
	m.take(name, done, total)
}

// Show takes how far a file is. It begins with its first call, with another name, or with less than was done.
func (m *Meter) Show(name string, done, total int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if name != m.reading.Name || done < m.reading.Done {
		m.samples = nil
	}
	m.take(name, done, total)
}

func (m *Meter) take(name string, done, total int64) {
	now := m.now()
	m.reading = Reading{Name: name, Done: done, Total: total}
	for len(m.samples) > 1 && now.Sub(m.samples[1].at) >= window {
		m.samples = m.samples[1:]
	}
	if n := len(m.samples); n == 0 || now.Sub(m.samples[n-1].at) >= spacing {
		m.samples = append(m.samples, sample{now, done})
	}
}

// Reading returns how far the transfer is now.
func (m *Meter) Reading() Reading {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := m.reading
	if len(m.samples) == 0 {
		return out
	}
	took := m.now().Sub(m.samples[0].at).Seconds()
	if took <= 0 {
		return out
	}
	out.PerSecond = float64(out.Done-m.samples[0].done) / took
	if rest := float64(out.Total - out.Done); rest > 0 && out.PerSecond > 0 {
		if left := rest / out.PerSecond; left < most.Seconds() {
			out.Left = time.Duration(left * float64(time.Second)).Round(time.Second)
		}
	}
	return out
}

// Percent returns how much is done, such as 42%; empty where the total is not known.
func (r Reading) Percent() string {
	switch {
	case r.Total > 0:
		return fmt.Sprintf("%d%%", max(0, min(100, int64(float64(r.Done)*100/float64(r.Total)))))
	case r.Total < 0:
		return ""
	}
	return "100%"
}

// Remaining returns the time that is left, such as 12s; empty where it is not known.
func (r Reading) Remaining() string {
	if r.Left <= 0 {
		return ""
	}
	return duration.HumanDuration(r.Left)
}

// Speed returns the speed, such as 31.0 MiB/s.
func (r Reading) Speed() string { return Size(r.PerSecond) + "/s" }

// Size formats a number of bytes for people.
func Size(bytes float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for ; bytes >= 1024 && i < len(units)-1; i++ {
		bytes /= 1024
	}
	if i == 0 {
		return fmt.Sprintf("%.0f B", bytes)
	}
	return fmt.Sprintf("%.1f %s", bytes, units[i])
}

package pace

import (
	"testing"
	"time"
)

// clock is a meter's clock that a test moves.
type clock struct{ at time.Time }

func (c *clock) now() time.Time           { return c.at }
func (c *clock) pass(d time.Duration)     { c.at = c.at.Add(d) }
func started() (*clock, *Meter)           { c := &clock{time.Unix(1000, 0)}; return c, NewMeter(c.now) }
func seconds(n float64) (d time.Duration) { return time.Duration(n * float64(time.Second)) }

func TestMeter(t *testing.T) {
	c, m := started()
	if r := m.Reading(); r != (Reading{}) {
		t.Errorf("before anything: %+v", r)
	}
	m.Show("root", 0, 100<<20)
	if r := m.Reading(); r.PerSecond != 0 || r.Left != 0 || r.Percent() != "0%" {
		t.Errorf("at the beginning: %+v", r)
	}
	c.pass(seconds(2))
	m.Show("root", 20<<20, 100<<20)
	if r := m.Reading(); r.PerSecond != 10<<20 || r.Left != 8*time.Second || r.Percent() != "20%" ||
		r.Remaining() != "8s" || r.Speed() != "10.0 MiB/s" {
		t.Errorf("after 2 seconds: %+v, %s left", r, r.Remaining())
	}
	m.Show("root", 100<<20, 100<<20)
	if r := m.Reading(); r.Left != 0 || r.Remaining() != "" || r.Percent() != "100%" {
		t.Errorf("at the end: %+v", r)
	}
}

// The speed is that of the last seconds, so that a stall is seen.
func TestMeterForgets(t *testing.T) {
	c, m := started()
	m.Show("root", 0, 1<<40)
	for range 20 {
		c.pass(time.Second)
		m.Show("root", m.Reading().Done+100<<20, 1<<40)
	}
	fast := m.Reading().PerSecond
	for range 20 {
		c.pass(time.Second)
		m.Show("root", m.Reading().Done+1<<20, 1<<40)
	}
	if slow := m.Reading().PerSecond; fast < 99<<20 || slow > 2<<20 {
		t.Errorf("first %.0f, then %.0f bytes per second", fast, slow)
	}
	c.pass(time.Hour)
	if stalled := m.Reading(); stalled.PerSecond > 10<<10 {
		t.Errorf("after an hour without a byte: %.0f bytes per second", stalled.PerSecond)
	}
}

// What was there before a transfer that goes on is no speed; another file, or the same from its beginning, is measured
// anew.
func TestMeterBeginsAnew(t *testing.T) {
	c, m := started()
	m.Show("root", 900, 1000)
	c.pass(time.Second)
	m.Show("root", 910, 1000)
	if r := m.Reading(); r.PerSecond != 10 || r.Left != 9*time.Second {
		t.Errorf("a transfer that goes on: %+v", r)
	}
	m.Show("data", 0, -1)
	c.pass(time.Second)
	m.Show("data", 5, -1)
	if r := m.Reading(); r.PerSecond != 5 || r.Left != 0 || r.Percent() != "" {
		t.Errorf("another file, of unknown size: %+v", r)
	}
	m.Show("data", 0, 0)
	if r := m.Reading(); r.PerSecond != 0 || r.Percent() != "100%" {
		t.Errorf("an empty file: %+v", r)
	}
}

func TestSize(t *testing.T) {
	for bytes, want := range map[float64]string{
		0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 5 << 30: "5.0 GiB", 3 << 50: "3072.0 TiB",
	} {
		if got := Size(bytes); got != want {
			t.Errorf("%f: %s, not %s", bytes, got, want)
		}
	}
}

// A time that nobody waits for is not said.
func TestRemainingForever(t *testing.T) {
	c, m := started()
	m.Show("root", 0, 1<<62)
	c.pass(time.Second)
	m.Show("root", 1, 1<<62)
	if r := m.Reading(); r.Left != 0 || r.Remaining() != "" {
		t.Errorf("%+v", r)
	}
}

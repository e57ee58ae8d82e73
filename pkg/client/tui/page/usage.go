package page

import (
	"math"
	"slices"
	"time"

	"github.com/virtkit/virtkit/pkg/client/action/top"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/report/stats"
)

// history is how many readings are kept of a guest: two minutes of them.
const history = 60

// Every is the time between two readings of what guests use.
const Every = 2 * time.Second

// tolerated is how far two readings may be apart without anything having been missed: a server may be slow.
const tolerated = 5 * Every

// Usage keeps what guests used lately. It is the app's goroutine's alone.
type Usage struct {
	last   stats.List
	guests map[store.Key]*Series
	at     time.Time // of the last reading
	missed int       // readings since then that there are gaps for
	failed bool      // whether one was tried since then
}

// Series has one guest's usage, the newest last. What was not read is no number.
type Series struct {
	Now                    top.Row
	CPU, Memory, Net, Disk []float64
	// Read is when Now was.
	Read time.Time
}

// NewUsage knows of no guest.
func NewUsage() *Usage { return &Usage{guests: map[store.Key]*Series{}} }

// Missing reports whether the newest is not known.
func (s *Series) Missing() bool { return math.IsNaN(s.CPU[len(s.CPU)-1]) }

// says returns text, or "-" when the newest value is not known.
func (s *Series) says(text string) string {
	if s.Missing() {
		return "-"
	}
	return text
}

// push adds what was used, or that it is not known.
func (s *Series) push(cpu, memory, net, disk float64) {
	s.CPU, s.Memory, s.Net, s.Disk = push(s.CPU, cpu), push(s.Memory, memory), push(s.Net, net), push(s.Disk, disk)
}

func (s *Series) skip() { s.push(math.NaN(), math.NaN(), math.NaN(), math.NaN()) }

// Miss takes note of a reading that failed.
func (u *Usage) Miss(at time.Time) {
	u.failed = true
	u.pass(at, 0)
}

// pass leaves a gap for each reading that was missed since the last one; own is how many there are now.
func (u *Usage) pass(at time.Time, own int) {
	since := at.Sub(u.at)
	if u.at.IsZero() || !u.failed && since <= tolerated {
		return
	}
	for gaps := max(1, int(since/Every)-own); u.missed < min(gaps, history); u.missed++ {
		for _, s := range u.guests {
			s.skip()
		}
	}
}

// Take adds a reading. A guest that is neither in it nor missing in it is forgotten.
func (u *Usage) Take(list stats.List, at time.Time) {
	u.pass(at, 1)
	u.at, u.missed, u.failed = at, 0, false
	absent := u.absent(list)
	report := top.Rates(u.last, list)
	u.last = list
	// The next reading of them is compared with the last that there is.
	u.last.Items = append(slices.Clone(list.Items), absent...)
	present := map[store.Key]bool{}
	for i := range u.last.Items {
		present[keyOf(&u.last.Items[i])] = true
	}
	for key := range u.guests {
		if !present[key] {
			delete(u.guests, key)
		}
	}
	read := map[store.Key]bool{}
	for _, row := range report.Items {
		key := store.Key{Namespace: row.Namespace, Name: row.Name}
		read[key] = true
		s := u.guests[key]
		if s == nil {
			s = &Series{}
			u.guests[key] = s
		}
		s.Now, s.Read = row, at
		s.push(float64(row.CPU), float64(used(row)), float64(row.NetworkReceived+row.NetworkSent),
			float64(row.DiskRead+row.DiskWritten))
	}
	for key, s := range u.guests {
		if !read[key] {
			s.skip()
		}
	}
}

func keyOf(g *stats.Guest) store.Key { return store.Key{Namespace: g.Namespace, Name: g.Name} }

// absent returns the guests of the last reading that run, as far as is known, and are not in this one.
func (u *Usage) absent(list stats.List) []stats.Guest {
	gone := map[store.Key]bool{}
	for i := range list.Items {
		gone[keyOf(&list.Items[i])] = true
	}
	var out []stats.Guest
	for i := range u.last.Items {
		g := &u.last.Items[i]
		late := slices.ContainsFunc(list.Unanswered, func(l stats.Unanswered) bool {
			return l.Namespace == g.Namespace && l.Name == g.Name
		})
		silent := slices.ContainsFunc(list.Unreachable, func(n stats.Unreachable) bool { return n.Node == g.Node })
		if (late || silent) && !gone[keyOf(g)] {
			out = append(out, *g)
		}
	}
	return out
}

// used returns the guest's memory in use: what the guest says, else what the node has given it so far. QEMU's own comes
// on top of that.
func used(row top.Row) uint64 {
	if row.MemoryUsed > 0 {
		return row.MemoryUsed
	}
	return min(row.Memory, row.MemoryResident)
}

// highest returns the greatest of the values that are known.
func highest(values []float64) float64 {
	out := 0.0
	for _, v := range values {
		if v > out { // which no number is not
			out = v
		}
	}
	return out
}

// Any reports whether anything is known of any guest.
func (u *Usage) Any() bool { return len(u.guests) > 0 }

// Of returns a guest's series, or nil.
func (u *Usage) Of(key store.Key) *Series { return u.guests[key] }

func push(values []float64, v float64) []float64 {
	if len(values) >= history {
		values = append(values[:0], values[len(values)-history+1:]...)
	}
	return append(values, v)
}

// Missing returns how many guests' use the last reading does not have, and how many nodes it has no guests of.
func (u *Usage) Missing() (guests, nodes int) { return len(u.last.Unanswered), len(u.last.Unreachable) }

// Total returns the usage of all guests when they were read last, without those that the reading does not have: of
// CPUs, cores, and of memory, bytes. ok is false before the first reading.
func (u *Usage) Total() (cpu, memory float64, ok bool) {
	for _, s := range u.guests {
		if s.Read != u.at {
			continue
		}
		cpu += float64(s.Now.CPU) / 1000
		memory += float64(used(s.Now))
	}
	return cpu, memory, len(u.guests) > 0
}

package page

import (
	"time"

	"github.com/virtkit/virtkit/pkg/client/action/top"
	"github.com/virtkit/virtkit/pkg/client/store"
	"github.com/virtkit/virtkit/pkg/report/stats"
)

// history is how many readings are kept of a guest: two minutes of them.
const history = 60

// Every is the time between two readings of what guests use.
const Every = 2 * time.Second

// Usage keeps what guests used lately. It is the app's goroutine's alone.
type Usage struct {
	last   stats.List
	guests map[store.Key]*Series
}

// Series has one guest's usage, the newest last.
type Series struct {
	Now                    top.Row
	CPU, Memory, Net, Disk []float64
}

// NewUsage knows of no guest.
func NewUsage() *Usage { return &Usage{guests: map[store.Key]*Series{}} }

// Take adds a reading. A guest that is not in it is forgotten.
func (u *Usage) Take(list stats.List) {
	report := top.Rates(u.last, list)
	u.last = list
	present := map[store.Key]bool{}
	for i := range list.Items {
		present[store.Key{Namespace: list.Items[i].Namespace, Name: list.Items[i].Name}] = true
	}
	for key := range u.guests {
		if !present[key] {
			delete(u.guests, key)
		}
	}
	for _, row := range report.Items {
		key := store.Key{Namespace: row.Namespace, Name: row.Name}
		s := u.guests[key]
		if s == nil {
			s = &Series{}
			u.guests[key] = s
		}
		s.Now = row
		s.CPU = push(s.CPU, float64(row.CPU))
		s.Memory = push(s.Memory, float64(used(row)))
		s.Net = push(s.Net, float64(row.NetworkReceived+row.NetworkSent))
		s.Disk = push(s.Disk, float64(row.DiskRead+row.DiskWritten))
	}
}

// used is the guest's memory in use: what it says, else what the node has given it so far. QEMU's own comes on top of
// that.
func used(row top.Row) uint64 {
	if row.MemoryUsed > 0 {
		return row.MemoryUsed
	}
	return min(row.Memory, row.MemoryResident)
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

// Total returns the usage of all guests: of CPUs, cores, and of memory, bytes. ok is false before the first reading.
func (u *Usage) Total() (cpu, memory float64, ok bool) {
	for _, s := range u.guests {
		cpu += float64(s.Now.CPU) / 1000
		memory += float64(used(s.Now))
	}
	return cpu, memory, len(u.guests) > 0
}

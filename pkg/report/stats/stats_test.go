package stats

import (
	"encoding/json"
	"testing"
	"time"
)

// The JSON is what virt-handlers, virt-api and clients of different versions say to each other: a key that is renamed
// reads as 0 on the other side.
func TestJSON(t *testing.T) {
	list := List{
		Items: []Guest{{
			Namespace: "prod", Name: "db", Node: "node01", Time: time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC),
			CPUTime: 1, VCPUs: 2, Memory: Memory{Guest: 3, Used: 4, Resident: 5},
			Interfaces: []Interface{{Name: "tap0", Received: 6, Sent: 7}},
			Disks:      []Disk{{Name: "vda", Read: 8, Written: 9, ReadRequests: 10, WriteRequests: 11}},
			Limits:     &Limits{Read: 12, Written: 13, Received: 14, Sent: 15},
		}, {Name: "bare"}},
		Unreachable: []Unreachable{{Node: "node02", Error: "no answer"}},
		Unanswered:  []Unanswered{{Namespace: "prod", Name: "web", Node: "node01"}},
	}
	const want = `{"items":[{"namespace":"prod","name":"db","node":"node01","time":"2026-07-01T12:00:00Z",` +
		`"cpuTimeNanoseconds":1,"vcpus":2,"memory":{"guestBytes":3,"usedBytes":4,"residentBytes":5},` +
		`"interfaces":[{"name":"tap0","receivedBytes":6,"sentBytes":7}],` +
		`"disks":[{"name":"vda","readBytes":8,"writtenBytes":9,"readRequests":10,"writeRequests":11}],` +
		`"limits":{"readBytesPerSecond":12,"writtenBytesPerSecond":13,"receivedBytesPerSecond":14,` +
		`"sentBytesPerSecond":15}},` +
		`{"namespace":"","name":"bare","time":"0001-01-01T00:00:00Z","cpuTimeNanoseconds":0,"vcpus":0,` +
		`"memory":{"guestBytes":0,"residentBytes":0}}],` +
		`"unreachable":[{"node":"node02","error":"no answer"}],` +
		`"unanswered":[{"namespace":"prod","name":"web","node":"node01"}]}`
	got, err := json.Marshal(list)
	if err != nil || string(got) != want {
		t.Errorf("%v, got\n%s\nwant\n%s", err, got, want)
	}
	if got, err := json.Marshal(List{Items: []Guest{}}); err != nil || string(got) != `{"items":[]}` {
		t.Errorf("no guest: %s, %v", got, err)
	}
}

// TestSums adds up the interfaces and disks of a guest, each way by itself.
func TestSums(t *testing.T) {
	g := Guest{
		Interfaces: []Interface{{Received: 1, Sent: 10}, {Received: 2, Sent: 20}},
		Disks:      []Disk{{Read: 100, Written: 1000}, {Read: 200, Written: 2000}},
	}
	received, sent := g.Network()
	read, written := g.Storage()
	if received != 3 || sent != 30 || read != 300 || written != 3000 {
		t.Errorf("network %d, %d; storage %d, %d", received, sent, read, written)
	}
}

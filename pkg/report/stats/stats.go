// Package stats reports what a running guest uses, as counters: virt-handler reads them from the launchers of its node,
// virt-api gathers the nodes', clients make rates of two readings. The JSON is virtkit's own part of
// subresources.kubevirt.io: GET …/namespaces/NS/stats, and GET …/stats for all namespaces.
package stats

import "time"

// List has the guests of one namespace, or of all.
type List struct {
	Items []Guest `json:"items"`
	// Unreachable are nodes whose guests are missing.
	Unreachable []Unreachable `json:"unreachable,omitempty"`
	// Unanswered are running guests that did not answer in time.
	Unanswered []Unanswered `json:"unanswered,omitempty"`
}

// Unanswered is a guest whose launcher did not answer in time.
type Unanswered struct {
	// Namespace and Name are the guest's, Node where it runs.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Node      string `json:"node,omitempty"`
}

// Unreachable is a node that did not answer.
type Unreachable struct {
	// Node is the node's name, and Error why its virt-handler gave no answer.
	Node  string `json:"node"`
	Error string `json:"error"`
}

// Guest is what one guest has used since it started. Counters begin anew when it starts anew, or has migrated.
type Guest struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Node      string `json:"node,omitempty"`
	// Time is when this was read.
	Time time.Time `json:"time"`
	// CPUTime is what QEMU has used, in nanoseconds of one processor; VCPUs is how many the guest has.
	CPUTime uint64 `json:"cpuTimeNanoseconds"`
	VCPUs   uint64 `json:"vcpus"`
	Memory  Memory `json:"memory"`
	// Interfaces and Disks are those of the guest.
	Interfaces []Interface `json:"interfaces,omitempty"`
	Disks      []Disk      `json:"disks,omitempty"`
	// Limits are the guest's, if it has any.
	Limits *Limits `json:"limits,omitempty"`
	// DeviceLimits are the limits of each disk and interface that has some: "disk root: iops=500,bps=50Mi".
	DeviceLimits []string `json:"deviceLimits,omitempty"`
}

// Limits are what a guest may read, write, receive and send, bytes a second; 0 is no limit, as where one of its disks
// or interfaces has none.
type Limits struct {
	Read     uint64 `json:"readBytesPerSecond,omitempty"`
	Written  uint64 `json:"writtenBytesPerSecond,omitempty"`
	Received uint64 `json:"receivedBytesPerSecond,omitempty"`
	Sent     uint64 `json:"sentBytesPerSecond,omitempty"`
}

// Memory is in bytes.
type Memory struct {
	// Guest is what the guest has, Used what it uses of that as its balloon driver says; 0 when it says nothing.
	Guest uint64 `json:"guestBytes"`
	Used  uint64 `json:"usedBytes,omitempty"`
	// Resident is what QEMU holds of the node's memory.
	Resident uint64 `json:"residentBytes"`
}

// Interface counts seen from the guest.
type Interface struct {
	Name     string `json:"name"`
	Received uint64 `json:"receivedBytes"`
	Sent     uint64 `json:"sentBytes"`
}

// Disk counts seen from the guest.
type Disk struct {
	// Name is the target: vda, sda, …
	Name          string `json:"name"`
	Read          uint64 `json:"readBytes"`
	Written       uint64 `json:"writtenBytes"`
	ReadRequests  uint64 `json:"readRequests"`
	WriteRequests uint64 `json:"writeRequests"`
}

// Network and Storage are sums over all interfaces and disks: bytes in and out.
func (g *Guest) Network() (received, sent uint64) {
	for _, i := range g.Interfaces {
		received += i.Received
		sent += i.Sent
	}
	return received, sent
}

// Storage sums the disks; see Network.
func (g *Guest) Storage() (read, written uint64) {
	for _, d := range g.Disks {
		read += d.Read
		written += d.Written
	}
	return read, written
}

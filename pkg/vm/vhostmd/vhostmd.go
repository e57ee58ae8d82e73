// Package vhostmd implements the format in which a guest reads metrics of its host and itself, as vhostmd and its tool
// vm-dump-metrics define it: Report has the metrics, as XML; Image and Update make the disk of it (volume
// downwardMetrics); Answer is the protocol of the virtio-serial port (devices.downwardMetrics). It is pure: the
// contents of /proc come in as text.
package vhostmd

import (
	"encoding/xml"
	"strconv"
	"strings"
	"time"
)

// Report is the metrics at one time.
type Report struct {
	XMLName xml.Name `xml:"metrics"`
	Metrics []Metric `xml:"metric"`
}

// Metric is one metric. Context is host or vm, Type string, int64, uint64 or real64; Unit is s, KiB or empty.
type Metric struct {
	Type    string `xml:"type,attr"`
	Context string `xml:"context,attr"`
	Unit    string `xml:"unit,attr,omitempty"`
	Name    string `xml:"name"`
	Value   string `xml:"value"`
}

// Guest has the metrics of the guest: CPUTime is the time that its vCPUs have used, Memory its memory, bytes.
type Guest struct {
	CPUTime time.Duration
	VCPUs   uint64
	Memory  uint64
}

// Host has the metrics of the node. Stat, Meminfo and VMStat are the files of /proc of that name; what they do not say
// is left out.
type Host struct {
	// Name is the node's, Product the hypervisor with its version.
	Name, Product string
	// Sockets is the number of physical processors; 0 when it is not known.
	Sockets               int
	Stat, Meminfo, VMStat string
	PageSize              uint64 // bytes
	Now                   time.Time
}

const (
	forHost = "host"
	forVM   = "vm"
	kibi    = 1 << 10
	// ticks is the unit of /proc/stat: USER_HZ, in a second.
	ticks = 100
)

// NewReport returns the metrics that KubeVirt gives, under their names there.
func NewReport(host Host, guest Guest) Report {
	var r Report
	r.text("HostName", host.Name)
	r.text("HostSystemInfo", "linux")
	r.text("VirtualizationVendor", "kubevirt.io")
	r.text("VirtProductInfo", host.Product)
	r.add("real64", forVM, "s", "TotalCPUTime", seconds(guest.CPUTime.Seconds()))
	r.count(forVM, "", "ResourceProcessorLimit", guest.VCPUs)
	r.count(forVM, "KiB", "PhysicalMemoryAllocatedToVirtualSystem", guest.Memory/kibi)
	r.count(forVM, "KiB", "ResourceMemoryLimit", guest.Memory/kibi)
	if host.Sockets > 0 {
		r.add("int64", forHost, "", "NumberOfPhysicalCPUs", strconv.Itoa(host.Sockets))
	}
	if used, ok := cpuTime(host.Stat); ok {
		r.add("real64", forHost, "s", "TotalCPUTime", seconds(used))
	}
	r.memory(numbers(host.Meminfo))
	if paged := numbers(host.VMStat); len(paged) > 0 {
		r.count(forHost, "KiB", "PagedInMemory", paged["pswpin"]*host.PageSize/kibi)
		r.count(forHost, "KiB", "PagedOutMemory", paged["pswpout"]*host.PageSize/kibi)
	}
	r.add("int64", forHost, "s", "Time", strconv.FormatInt(host.Now.Unix(), 10))
	return r
}

func (r *Report) add(kind, context, unit, name, value string) {
	r.Metrics = append(r.Metrics, Metric{Type: kind, Context: context, Unit: unit, Name: name, Value: value})
}

func (r *Report) text(name, value string) { r.add("string", forHost, "", name, value) }

func (r *Report) count(context, unit, name string, n uint64) {
	r.add("uint64", context, unit, name, strconv.FormatUint(n, 10))
}

// memory writes the node's memory, KiB as /proc/meminfo has it.
func (r *Report) memory(m map[string]uint64) {
	if len(m) == 0 {
		return
	}
	used := m["MemTotal"] - min(m["MemTotal"], m["MemFree"]+m["Buffers"]+m["Cached"])
	r.count(forHost, "KiB", "FreePhysicalMemory", m["MemFree"])
	r.count(forHost, "KiB", "FreeVirtualMemory", m["MemFree"]+m["SwapFree"])
	r.count(forHost, "KiB", "MemoryAllocatedToVirtualServers", used)
	r.count(forHost, "KiB", "UsedVirtualMemory", used+m["SwapTotal"]-min(m["SwapTotal"], m["SwapCached"]))
}

// cpuTime returns the time that all processors have spent in user mode and in the kernel, seconds.
func cpuTime(stat string) (float64, bool) {
	for line := range strings.Lines(stat) {
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[0] != "cpu" {
			continue
		}
		sum := uint64(0) // user, nice, system
		for _, field := range fields[1:4] {
			n, err := strconv.ParseUint(field, 10, 64)
			if err != nil {
				return 0, false
			}
			sum += n
		}
		return float64(sum) / ticks, true
	}
	return 0, false
}

// numbers returns the numbers of a file whose lines are a name, perhaps with a colon, and a number.
func numbers(text string) map[string]uint64 {
	out := map[string]uint64{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		if n, err := strconv.ParseUint(fields[1], 10, 64); err == nil {
			out[strings.TrimSuffix(fields[0], ":")] = n
		}
	}
	return out
}

func seconds(s float64) string { return strconv.FormatFloat(s, 'f', 2, 64) }

// XML returns the report as text.
func (r Report) XML() ([]byte, error) {
	return xml.MarshalIndent(r, "", "  ")
}

package usage

import (
	"maps"
	"slices"
	"strconv"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/service/metrics"
)

// moving are labels of a VMI that say where its guest is. They are left out: with them every series would begin
// anew when a guest moves, and the label node says the same.
var moving = map[string]bool{
	v1.NodeNameLabel: true, v1.MigrationTargetNodeNameLabel: true, v1.OutdatedLauncherImageLabel: true,
}

// identity returns the labels that all series of a guest begin with.
func identity(node string, r *Reading) metrics.Fixed {
	out := metrics.Labels(metrics.GuestLabels, node, r.VMI.Namespace, r.VMI.Name)
	seen := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(r.Labels)) {
		name := metrics.LabelPrefix + metrics.Name(key)
		if moving[key] || seen[name] { // two labels of one name would make the whole answer unreadable
			continue
		}
		seen[name] = true
		out = out.And(metrics.Labels([]string{name}, r.Labels[key]))
	}
	return out
}

type (
	stats = *launcherpb.StatsResponse
	nic   = *launcherpb.StatsResponse_Interface
	disk  = *launcherpb.StatsResponse_Disk
)

// One number a guest. The second result says whether it is known.
var scalars = []struct {
	family *metrics.Family
	of     func(stats) (float64, bool)
}{
	{metrics.CPUUsage, func(s stats) (float64, bool) { return seconds(s.CpuTime), true }},
	{metrics.CPUUser, func(s stats) (float64, bool) { return seconds(s.CpuUser), true }},
	{metrics.CPUSystem, func(s stats) (float64, bool) { return seconds(s.CpuSystem), true }},
	{metrics.MemoryBalloon, func(s stats) (float64, bool) { return float64(s.MemoryGuest), s.MemoryGuest > 0 }},
	{metrics.MemoryResident, func(s stats) (float64, bool) { return float64(s.MemoryResident), s.MemoryResident > 0 }},
	{metrics.MemoryDomain, func(s stats) (float64, bool) {
		return known(s.Memory.GetMaximum(), s.Memory != nil && s.Memory.Maximum != nil)
	}},
	{metrics.MemoryAvailable, func(s stats) (float64, bool) {
		return known(s.Memory.GetAvailable(), s.Memory != nil && s.Memory.Available != nil)
	}},
	{metrics.MemoryUsable, func(s stats) (float64, bool) {
		return known(s.Memory.GetUsable(), s.Memory != nil && s.Memory.Usable != nil)
	}},
	{metrics.MemoryUnused, func(s stats) (float64, bool) {
		return known(s.Memory.GetUnused(), s.Memory != nil && s.Memory.Unused != nil)
	}},
	{metrics.MemoryCached, func(s stats) (float64, bool) {
		return known(s.Memory.GetCached(), s.Memory != nil && s.Memory.Cached != nil)
	}},
	{metrics.MemorySwapIn, func(s stats) (float64, bool) {
		return known(s.Memory.GetSwapIn(), s.Memory != nil && s.Memory.SwapIn != nil)
	}},
	{metrics.MemorySwapOut, func(s stats) (float64, bool) {
		return known(s.Memory.GetSwapOut(), s.Memory != nil && s.Memory.SwapOut != nil)
	}},
	{metrics.MemoryMajorFaults, func(s stats) (float64, bool) {
		return known(s.Memory.GetMajorFaults(), s.Memory != nil && s.Memory.MajorFaults != nil)
	}},
	{metrics.MemoryMinorFaults, func(s stats) (float64, bool) {
		return known(s.Memory.GetMinorFaults(), s.Memory != nil && s.Memory.MinorFaults != nil)
	}},
}

var nics = []struct {
	family *metrics.Family
	of     func(nic) uint64
}{
	{metrics.NetworkReceivedBytes, nic.GetReceived},
	{metrics.NetworkReceivedPackets, nic.GetReceivedPackets},
	{metrics.NetworkReceivedErrors, nic.GetReceivedErrors},
	{metrics.NetworkReceivedDropped, nic.GetReceivedDropped},
	{metrics.NetworkSentBytes, nic.GetSent},
	{metrics.NetworkSentPackets, nic.GetSentPackets},
	{metrics.NetworkSentErrors, nic.GetSentErrors},
	{metrics.NetworkSentDropped, nic.GetSentDropped},
}

var disks = []struct {
	family *metrics.Family
	of     func(disk) float64
}{
	{metrics.StorageReads, func(d disk) float64 { return float64(d.ReadRequests) }},
	{metrics.StorageWrites, func(d disk) float64 { return float64(d.WriteRequests) }},
	{metrics.StorageReadBytes, func(d disk) float64 { return float64(d.Read) }},
	{metrics.StorageWrittenBytes, func(d disk) float64 { return float64(d.Written) }},
	{metrics.StorageReadSeconds, func(d disk) float64 { return seconds(d.ReadTime) }},
	{metrics.StorageWriteSeconds, func(d disk) float64 { return seconds(d.WriteTime) }},
	{metrics.StorageFlushes, func(d disk) float64 { return float64(d.FlushRequests) }},
	{metrics.StorageFlushSeconds, func(d disk) float64 { return seconds(d.FlushTime) }},
}

var migrations = []struct {
	family *metrics.Family
	of     func(*launcherpb.MigrationProgress) uint64
}{
	{metrics.MigrationTotal, (*launcherpb.MigrationProgress).GetDataTotal},
	{metrics.MigrationProcessed, (*launcherpb.MigrationProgress).GetDataProcessed},
	{metrics.MigrationRemaining, (*launcherpb.MigrationProgress).GetDataRemaining},
	{metrics.MigrationDirtyRate, (*launcherpb.MigrationProgress).GetDirtyRate},
	{metrics.MigrationMemoryRate, (*launcherpb.MigrationProgress).GetBandwidth},
}

// Write writes all metrics of guests that virt-handler of a node exposes.
func Write(w *metrics.Writer, node string, readings []Reading, missing int) {
	ids := make([]metrics.Fixed, len(readings))
	for i := range readings {
		ids[i] = identity(node, &readings[i])
	}
	for _, s := range scalars {
		w.Family(s.family)
		for i := range readings {
			if value, ok := s.of(readings[i].Stats); ok {
				w.Series(value, ids[i])
			}
		}
	}
	writeVCPUs(w, ids, readings)
	for _, n := range nics {
		w.Family(n.family)
		for i := range readings {
			for _, s := range readings[i].Stats.Interfaces {
				w.Series(float64(n.of(s)), ids[i], named(readings[i].Interfaces, s.Name))
			}
		}
	}
	for _, d := range disks {
		w.Family(d.family)
		for i := range readings {
			for _, s := range readings[i].Stats.Disks {
				w.Series(d.of(s), ids[i], named(readings[i].Disks, s.Name))
			}
		}
	}
	writeFilesystems(w, ids, readings)
	writeLoad(w, ids, readings)
	for _, m := range migrations {
		w.Family(m.family)
		for i := range readings {
			if p := readings[i].Migration; p != nil {
				w.Series(float64(m.of(p)), ids[i])
			}
		}
	}
	w.Family(metrics.GuestsUnreachable)
	w.Series(float64(missing), metrics.Labels([]string{"node"}, node))
	illegal := 0
	for i := range readings {
		illegal += int(readings[i].Stats.IllegalTransitions)
	}
	w.Family(metrics.IllegalTransitions)
	w.Series(float64(illegal), metrics.Labels([]string{"node"}, node))
}

var vcpuStates = []string{"offline", "running", "blocked"}

func writeVCPUs(w *metrics.Writer, ids []metrics.Fixed, readings []Reading) {
	w.Family(metrics.VCPUSeconds)
	for i := range readings {
		for _, v := range readings[i].Stats.VcpuTimes {
			state := ""
			if int(v.State) < len(vcpuStates) {
				state = vcpuStates[v.State]
			}
			w.Series(seconds(v.Time), ids[i], strconv.FormatUint(uint64(v.Id), 10), state)
		}
	}
	for _, f := range []struct {
		family *metrics.Family
		of     func(*launcherpb.StatsResponse_VCPU) *uint64
	}{
		{metrics.VCPUWait, func(v *launcherpb.StatsResponse_VCPU) *uint64 { return v.Wait }},
		{metrics.VCPUDelay, func(v *launcherpb.StatsResponse_VCPU) *uint64 { return v.Delay }},
	} {
		w.Family(f.family)
		for i := range readings {
			for _, v := range readings[i].Stats.VcpuTimes {
				if value := f.of(v); value != nil {
					w.Series(seconds(*value), ids[i], strconv.FormatUint(uint64(v.Id), 10))
				}
			}
		}
	}
}

func writeFilesystems(w *metrics.Writer, ids []metrics.Fixed, readings []Reading) {
	for _, f := range []struct {
		family *metrics.Family
		of     func(*v1.VirtualMachineInstanceFileSystem) int
	}{
		{metrics.FilesystemCapacity, func(f *v1.VirtualMachineInstanceFileSystem) int { return f.TotalBytes }},
		{metrics.FilesystemUsed, func(f *v1.VirtualMachineInstanceFileSystem) int { return f.UsedBytes }},
	} {
		w.Family(f.family)
		for i := range readings {
			for k := range readings[i].Filesystems {
				fs := &readings[i].Filesystems[k]
				w.Series(float64(f.of(fs)), ids[i], fs.DiskName, fs.MountPoint, fs.FileSystemType)
			}
		}
	}
}

func writeLoad(w *metrics.Writer, ids []metrics.Fixed, readings []Reading) {
	for n, family := range []*metrics.Family{metrics.GuestLoad1, metrics.GuestLoad5, metrics.GuestLoad15} {
		w.Family(family)
		for i := range readings {
			if n < len(readings[i].Load) {
				w.Series(readings[i].Load[n], ids[i])
			}
		}
	}
}

func known(value uint64, ok bool) (float64, bool) { return float64(value), ok }

func seconds(nanoseconds uint64) float64 {
	return float64(nanoseconds) / float64(time.Second)
}

// named returns the spec's name of what has another name in the domain.
func named(names map[string]string, name string) string {
	if of, ok := names[name]; ok {
		return of
	}
	return name
}

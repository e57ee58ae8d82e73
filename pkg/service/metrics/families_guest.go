package metrics

// Labels that a guest's series begin with, in guest.Write's order; those of its VirtualMachineInstance follow as
// LabelPrefix and the label's name, as KubeVirt has it.
var (
	guest       = []string{"node", "namespace", "name"}
	LabelPrefix = "kubernetes_vmi_label_"
)

func ofGuest(kind Type, name, help string, more ...string) *Family {
	return family(Handler, kind, "kubevirt_vmi_"+name, help, append(guest[:len(guest):len(guest)], more...)...)
}

// What guests use, by virt-handler.
var (
	CPUUsage  = ofGuest(Counter, "cpu_usage_seconds_total", "Total CPU time that the guest's QEMU has used.")
	CPUUser   = ofGuest(Counter, "cpu_user_usage_seconds_total", "Total CPU time spent in user mode.")
	CPUSystem = ofGuest(Counter, "cpu_system_usage_seconds_total", "Total CPU time spent in system mode.")

	VCPUSeconds = ofGuest(Counter, "vcpu_seconds_total",
		"Total time that a vCPU has run, with the state it is in now: offline, running or blocked.", "id", "state")
	VCPUWait  = ofGuest(Counter, "vcpu_wait_seconds_total", "Time that a vCPU has waited for I/O.", "id")
	VCPUDelay = ofGuest(Counter, "vcpu_delay_seconds_total",
		"Time that a vCPU could have run and waited for a processor of the node.", "id")

	MemoryDomain    = ofGuest(Gauge, "memory_domain_bytes", "Memory that the guest may have at most.")
	MemoryBalloon   = ofGuest(Gauge, "memory_actual_balloon_bytes", "Memory that the guest has now, by its balloon.")
	MemoryResident  = ofGuest(Gauge, "memory_resident_bytes", "Memory of the node that the guest's QEMU holds.")
	MemoryAvailable = ofGuest(Gauge, "memory_available_bytes",
		"Memory that the guest's system can use, as its balloon driver says.")
	MemoryUsable = ofGuest(Gauge, "memory_usable_bytes",
		"Memory that the guest can give away without swapping: MemAvailable of Linux.")
	MemoryUnused = ofGuest(Gauge, "memory_unused_bytes",
		"Memory that the guest uses for nothing at all: MemFree of Linux.")
	MemoryCached = ofGuest(Gauge, "memory_cached_bytes",
		"Memory that the guest uses to cache I/O and can take back.")
	MemorySwapIn = ofGuest(Gauge, "memory_swap_in_traffic_bytes",
		"Bytes that the guest has read from its swap space in all.")
	MemorySwapOut = ofGuest(Gauge, "memory_swap_out_traffic_bytes",
		"Bytes that the guest has written to its swap space in all.")
	MemoryMajorFaults = ofGuest(Counter, "memory_pgmajfault_total", "Page faults of the guest that needed its disk.")
	MemoryMinorFaults = ofGuest(Counter, "memory_pgminfault_total",
		"Page faults of the guest that did not need its disk.")

	NetworkReceivedBytes = ofGuest(Counter, "network_receive_bytes_total", "Bytes that the guest has received.",
		"interface")
	NetworkReceivedPackets = ofGuest(Counter, "network_receive_packets_total", "Packets that the guest has received.",
		"interface")
	NetworkReceivedErrors = ofGuest(Counter, "network_receive_errors_total", "Packets for the guest that were faulty.",
		"interface")
	NetworkReceivedDropped = ofGuest(Counter, "network_receive_packets_dropped_total",
		"Packets for the guest that were dropped.", "interface")
	NetworkSentBytes   = ofGuest(Counter, "network_transmit_bytes_total", "Bytes that the guest has sent.", "interface")
	NetworkSentPackets = ofGuest(Counter, "network_transmit_packets_total", "Packets that the guest has sent.",
		"interface")
	NetworkSentErrors = ofGuest(Counter, "network_transmit_errors_total", "Packets of the guest that were faulty.",
		"interface")
	NetworkSentDropped = ofGuest(Counter, "network_transmit_packets_dropped_total",
		"Packets of the guest that were dropped.", "interface")

	StorageReads        = ofGuest(Counter, "storage_iops_read_total", "Reads of a disk.", "drive")
	StorageWrites       = ofGuest(Counter, "storage_iops_write_total", "Writes to a disk.", "drive")
	StorageReadBytes    = ofGuest(Counter, "storage_read_traffic_bytes_total", "Bytes read from a disk.", "drive")
	StorageWrittenBytes = ofGuest(Counter, "storage_write_traffic_bytes_total", "Bytes written to a disk.", "drive")
	StorageReadSeconds  = ofGuest(Counter, "storage_read_times_seconds_total",
		"Time that reads of a disk took.", "drive")
	StorageWriteSeconds = ofGuest(Counter, "storage_write_times_seconds_total",
		"Time that writes to a disk took.", "drive")
	StorageFlushes      = ofGuest(Counter, "storage_flush_requests_total", "Flushes of a disk.", "drive")
	StorageFlushSeconds = ofGuest(Counter, "storage_flush_times_seconds_total",
		"Time that flushes of a disk took.", "drive")
	FilesystemCapacity = ofGuest(Gauge, "filesystem_capacity_bytes",
		"Size of a file system in the guest, as its agent says.", "disk_name", "mount_point", "file_system_type")
	FilesystemUsed = ofGuest(Gauge, "filesystem_used_bytes",
		"Used bytes of a file system in the guest, as its agent says.", "disk_name", "mount_point", "file_system_type")
	GuestLoad1 = ofGuest(Gauge, "guest_load_1m", "Processes that ran or waited for a processor or a disk in "+
		"the guest, on average of a minute, as its agent (version 10 or newer) says.")
	GuestLoad5     = ofGuest(Gauge, "guest_load_5m", "The same of five minutes.")
	GuestLoad15    = ofGuest(Gauge, "guest_load_15m", "The same of a quarter of an hour.")
	MigrationTotal = ofGuest(Counter, "migration_data_bytes_total",
		"Memory and disks that are to move with the guest, from the node that it leaves.")
	MigrationProcessed = ofGuest(Gauge, "migration_data_processed_bytes", "What has been copied of the guest so far.")
	MigrationRemaining = ofGuest(Gauge, "migration_data_remaining_bytes", "What is still to be copied of the guest.")
	MigrationDirtyRate = ofGuest(Gauge, "migration_dirty_memory_rate_bytes",
		"How much memory a second the guest changes while it moves.")
	MigrationMemoryRate = ofGuest(Gauge, "migration_memory_transfer_rate_bytes",
		"How much of the guest's memory is copied a second.")
	GuestsUnreachable = own(Handler, Gauge, "virtkit_guests_unreachable",
		"Guests of the node that are missing in this answer, since their launchers did not answer in time.")
	IllegalTransitions = own(Handler, Gauge, "virtkit_launcher_illegal_transitions",
		"Events that the states of the guests in this answer did not allow: mistakes of virt-launcher, "+
			"whose log has them.")
	StorageStuck = own(Handler, Gauge, "virtkit_storage_stuck",
		"What virt-handler has begun in guests' pods and waits for storage that does not answer.")
	HandlerReady = family(Handler, Gauge, "kubevirt_virt_handler_ready_status",
		"1 while this virt-handler follows its node's guests and can be called.")
	GuestLabels = guest
)

package metrics

// What the guest's system is, in the labels of an instance.
var system = []string{
	"os", "workload", "flavor", "instance_type", "preference",
	"guest_os_kernel_release", "guest_os_machine", "guest_os_arch", "guest_os_name", "guest_os_version_id",
}

func labels(first []string, more ...string) []string {
	return append(first[:len(first):len(first)], more...)
}

// machine are the labels that say which one; KubeVirt has them in this order where it is about a VirtualMachine.
var machine = []string{"name", "namespace"}

// restored are the labels that say of which VirtualMachine the snapshot was.
var restored = []string{"vm_name", "vm_namespace"}

// transitions are the buckets of the time between phases, seconds: 100 ms to 20 minutes.
var transitions = []float64{.1, .2, .5, 1, 1.5, 2, 3, 5, 7.5, 10, 20, 30, 60, 120, 180, 300, 600, 1200}

// What exists, by the virt-controller that leads.
var (
	VMIInfo = family(Controller, Gauge, "kubevirt_vmi_info",
		"A VirtualMachineInstance: where it is, in which phase, and what its guest says of itself.",
		labels(labels(labels(guest, "phase"), system...), "evictable", "outdated", "vmi_pod")...)
	VMIPhaseCount = family(Controller, Gauge, "kubevirt_vmi_phase_count",
		"VirtualMachineInstances by node, phase and system.",
		labels([]string{"node", "phase"}, system...)...)
	VMINonEvictable = family(Controller, Gauge, "kubevirt_vmi_non_evictable",
		"1 for a VirtualMachineInstance that its eviction strategy would have moved, and that cannot move.", guest...)
	VMIOverhead = family(Controller, Gauge, "kubevirt_vmi_launcher_memory_overhead_bytes",
		"Memory that the launcher pod of a VirtualMachineInstance asks for beyond its guest's.", "namespace", "name")
	VMIAddresses = family(Controller, Gauge, "kubevirt_vmi_status_addresses", "Addresses of a VirtualMachineInstance.",
		labels(guest, "vnic_name", "interface_name", "address", "type")...)
	VMIInterfaces = family(Controller, Gauge, "kubevirt_vmi_vnic_info",
		"Network interfaces of a VirtualMachineInstance.",
		labels(machine, "vnic_name", "binding_type", "network", "binding_name", "model")...)
	VMIEphemeralHotplug = family(Controller, Gauge, "kubevirt_vmi_contains_ephemeral_hotplug_volume",
		"1 for a volume that was plugged into a VirtualMachineInstance, and which its VirtualMachine does not have: "+
			"a restart loses it.",
		"namespace", "name", "volume_name")
	VMIOutdated = family(Controller, Gauge, "kubevirt_vmi_number_of_outdated",
		"VirtualMachineInstances that run an older virt-launcher.")
	VMIMigrationStart = family(Controller, Gauge, "kubevirt_vmi_migration_start_time_seconds",
		"When the last migration of a VirtualMachineInstance began.",
		labels(guest, "migration_name")...)
	VMIMigrationEnd = family(Controller, Gauge, "kubevirt_vmi_migration_end_time_seconds",
		"When the last migration of a VirtualMachineInstance ended.",
		labels(guest, "migration_name", "status")...)
	VMIPhaseTransition = histogram(Controller, transitions, "kubevirt_vmi_phase_transition_time_seconds",
		"Time that VirtualMachineInstances took from one phase to the next.", "phase", "last_phase")
	VMIPhaseFromCreation = histogram(Controller, transitions,
		"kubevirt_vmi_phase_transition_time_from_creation_seconds",
		"Time that VirtualMachineInstances took from their creation to a phase.", "phase")
	VMIPhaseFromDeletion = histogram(Controller, transitions,
		"kubevirt_vmi_phase_transition_time_from_deletion_seconds",
		"Time that VirtualMachineInstances took from their deletion to their last phase.", "phase")

	VMInfo = family(Controller, Gauge, "kubevirt_vm_info", "A VirtualMachine and its status.",
		labels(machine, "os", "workload", "flavor", "machine_type", "instance_type", "preference", "status",
			"status_group")...)
	VMCount   = family(Controller, Gauge, "kubevirt_number_of_vms", "VirtualMachines of a namespace.", "namespace")
	VMCreated = family(Controller, Gauge, "kubevirt_vm_create_date_timestamp_seconds",
		"When a VirtualMachine was created.", machine...)
	VMStarting = family(Controller, Counter, "kubevirt_vm_starting_status_last_transition_timestamp_seconds",
		"Since when a VirtualMachine is starting; 0 when it is not.", machine...)
	VMRunning = family(Controller, Counter, "kubevirt_vm_running_status_last_transition_timestamp_seconds",
		"Since when a VirtualMachine is running; 0 when it is not.", machine...)
	VMMigrating = family(Controller, Counter, "kubevirt_vm_migrating_status_last_transition_timestamp_seconds",
		"Since when a VirtualMachine is migrating; 0 when it is not.", machine...)
	VMNonRunning = family(Controller, Counter, "kubevirt_vm_non_running_status_last_transition_timestamp_seconds",
		"Since when a VirtualMachine is stopped, paused or on its way there; 0 when it is not.", machine...)
	VMError = family(Controller, Counter, "kubevirt_vm_error_status_last_transition_timestamp_seconds",
		"Since when a VirtualMachine is in an error; 0 when it is not.", machine...)
	VMRequests = family(Controller, Gauge, "kubevirt_vm_resource_requests",
		"What a VirtualMachine asks for: memory in bytes, cpu in cores, and its parts. source says from where.",
		labels(machine, "resource", "unit", "source")...)
	VMLimits = family(Controller, Gauge, "kubevirt_vm_resource_limits",
		"What a VirtualMachine may use at most: memory in bytes, cpu in cores.",
		labels(machine, "resource", "unit")...)
	VMDisks = family(Controller, Gauge, "kubevirt_vm_disk_allocated_size_bytes",
		"Size of a claim that is a disk of a VirtualMachine.",
		labels(machine, "persistentvolumeclaim", "volume_mode", "device")...)
	VMInterfaces = family(Controller, Gauge, "kubevirt_vm_vnic_info", "Network interfaces of a VirtualMachine.",
		labels(machine, "vnic_name", "binding_type", "network", "binding_name", "model")...)

	SnapshotSucceeded = family(Controller, Gauge, "kubevirt_vmsnapshot_succeeded_timestamp_seconds",
		"When a VirtualMachineSnapshot was made.", "name", "snapshot_name", "namespace")
	RestoreInfo = family(Controller, Gauge, "kubevirt_vmrestore_info", "A VirtualMachineRestore, and how far it is.",
		"namespace", "name", "uid", "vm", "snapshot_name", "complete", "failure")
	RestoredClaims = family(Controller, Gauge, "kubevirt_vmsnapshot_persistentvolumeclaim_labels",
		"1 for a claim that was restored from the snapshot of a VirtualMachine, vm_name.",
		labels([]string{"namespace", "persistentvolumeclaim"}, restored...)...)
	RestoredDisks = family(Controller, Gauge, "kubevirt_vmsnapshot_disks_restored_from_source",
		"Claims that were restored from snapshots of a VirtualMachine and are there.", restored...)
	RestoredBytes = family(Controller, Gauge, "kubevirt_vmsnapshot_disks_restored_from_source_bytes",
		"Size of the claims that were restored from snapshots of a VirtualMachine and are there.", restored...)

	MigrationsUnset = family(Controller, Gauge, "kubevirt_vmi_migrations_in_unset_phase",
		"Migrations that virt-controller has not seen yet.")
	MigrationsPending = family(Controller, Gauge, "kubevirt_vmi_migrations_in_pending_phase",
		"Migrations that wait for their turn.")
	MigrationsScheduling = family(Controller, Gauge, "kubevirt_vmi_migrations_in_scheduling_phase",
		"Migrations whose guest waits for a node.")
	MigrationsRunning = family(Controller, Gauge, "kubevirt_vmi_migrations_in_running_phase",
		"Migrations that are under way.")
	MigrationSucceeded = family(Controller, Gauge, "kubevirt_vmi_migration_succeeded",
		"1 for a migration that succeeded.", "vmi", "vmim", "namespace")
	MigrationFailed = family(Controller, Gauge, "kubevirt_vmi_migration_failed", "1 for a migration that failed.",
		"vmi", "vmim", "namespace")
	MigrationPhases = histogram(Controller, transitions,
		"kubevirt_vmi_migration_phase_transition_time_from_creation_seconds",
		"Time that migrations took from their creation to a phase.", "phase")

	NodesAllocatable = family(Controller, Gauge, "kubevirt_allocatable_nodes", "Nodes that take virtual machines.")
	NodesKVM         = family(Controller, Gauge, "kubevirt_nodes_with_kvm", "Nodes that have hardware virtualization.")
	Emulation        = family(Controller, Gauge, "kubevirt_configuration_emulation_enabled",
		"1 when the KubeVirt resource lets guests be emulated where there is no hardware virtualization.")
	ControllerLeading = family(Controller, Gauge, "kubevirt_virt_controller_leading_status",
		"1 while this virt-controller leads.")
	ControllerReady = family(Controller, Gauge, "kubevirt_virt_controller_ready_status",
		"1 while this virt-controller is ready to lead.")
)

package surface

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

var (
	architectures = []string{"amd64"}
	pullPolicies  = []string{string(corev1.PullAlways), string(corev1.PullIfNotPresent), string(corev1.PullNever)}
	diskBuses     = []string{
		string(v1.DiskBusVirtio), string(v1.DiskBusSATA), string(v1.DiskBusSCSI),
		string(v1.DiskBusUSB),
	}
	cdromBuses    = []string{string(v1.DiskBusSATA), string(v1.DiskBusSCSI), string(v1.DiskBusUSB)}
	caches        = []string{string(v1.CacheNone), string(v1.CacheWriteThrough), string(v1.CacheWriteBack)}
	ioModes       = []string{string(v1.IONative), string(v1.IOThreads)}
	errorPolicies = []string{
		string(v1.DiskErrorPolicyStop), string(v1.DiskErrorPolicyIgnore),
		string(v1.DiskErrorPolicyReport), string(v1.DiskErrorPolicyEnospace),
	}
	nicModels = []string{"virtio", "e1000", "e1000e", "igb", "rtl8139", "ne2k_pci", "pcnet"}
	nicStates = []string{
		string(v1.InterfaceStateLinkUp), string(v1.InterfaceStateLinkDown),
		string(v1.InterfaceStateAbsent),
	}
	pageSizes       = []string{"2Mi", "1Gi"}
	featurePolicies = []string{"force", "require", "optional", "disable", "forbid"}
	inputBuses      = []string{string(v1.InputBusUSB), string(v1.InputBusVirtio)}
	inputTypes      = []string{string(v1.InputTypeTablet), string(v1.InputTypeKeyboard)}
	videoTypes      = []string{"vga", "virtio", "bochs", "ramfb", "cirrus"}
	hostDiskTypes   = []string{string(v1.HostDiskExists), string(v1.HostDiskExistsOrCreate)}
	watchdogActions = []string{
		string(v1.WatchdogActionPoweroff), string(v1.WatchdogActionReset),
		string(v1.WatchdogActionShutdown),
	}
	panicModels    = []string{string(v1.Pvpanic), string(v1.Isa), string(v1.Hyperv)}
	rebootPolicies = []string{string(v1.RebootPolicyReboot), string(v1.RebootPolicyTerminate)}
	dnsPolicies    = []string{
		string(corev1.DNSClusterFirst), string(corev1.DNSClusterFirstWithHostNet), string(corev1.DNSDefault),
		string(corev1.DNSNone),
	}
	protocols          = []string{"TCP", "UDP"}
	evictionStrategies = []string{
		string(v1.EvictionStrategyNone), string(v1.EvictionStrategyLiveMigrate),
		string(v1.EvictionStrategyLiveMigrateIfPossible), string(v1.EvictionStrategyExternal),
	}
)

// instanceFields is the table of VirtualMachineInstance.
var instanceFields = slices.Concat(
	hardwareFields, deviceFields, placementFields, volumeFields, guestFields,
	probeFields("readinessProbe", "The condition Ready, and the endpoints of Services, follow it.",
		Field{Note: "1 unless set."}),
	probeFields("livenessProbe", "When it fails, the guest is shut down, and the instance has failed.",
		Field{Only: []string{"0", "1"}}),
	[]Field{{Path: "architecture", Effect: Pod, Only: architectures}},
)

// placementFields are the other fields of spec.domain, and those for where the guest runs and how it starts and ends.
var placementFields = []Field{
	{
		Path: "domain.ioThreadsPolicy", Effect: Domain, Only: ioThreadsPolicies,
		Note: "Of virtio disks and the controller of scsi disks.",
	},
	{
		Path: "domain.ioThreads.supplementalPoolThreadCount", Effect: Domain,
		Note: "With ioThreadsPolicy supplementalPool, each thread of which serves every virtio disk.",
	},
	{Path: "domain.launchSecurity.sev", Effect: Domain, Note: "Needs the feature gate WorkloadEncryptionSEV and UEFI " +
		"without Secure Boot; docs/cpu-memory.md."},
	{
		Path: "domain.launchSecurity.sev.policy.encryptedState", Effect: Domain,
		Note: "SEV-ES: on nodes with the label kubevirt.io/sev-es.",
	},
	{Path: "domain.chassis.manufacturer", Effect: Domain},
	{Path: "domain.chassis.version", Effect: Domain},
	{Path: "domain.chassis.serial", Effect: Domain},
	{Path: "domain.chassis.asset", Effect: Domain},
	{Path: "domain.chassis.sku", Effect: Domain},
	{Path: "domain.rebootPolicy", Effect: Domain, Only: rebootPolicies},
	{Path: "nodeSelector", Effect: Pod},
	{Path: "affinity", Effect: Pod},
	{Path: "schedulerName", Effect: Pod},
	{Path: "tolerations", Effect: Pod},
	{Path: "topologySpreadConstraints", Effect: Pod},
	{Path: "evictionStrategy", Effect: Life, Note: "What the eviction of the pod means for the guest; docs/drain.md. " +
		"Of the cluster unless set, which is None unless set.", Only: evictionStrategies},
	{
		Path: "startStrategy", Effect: Life, Note: "The guest waits, paused, until it is unpaused.",
		Only: []string{string(v1.StartStrategyPaused)},
	},
	{Path: "terminationGracePeriodSeconds", Effect: Life, Note: "30 unless set."},
}

// guestFields are the fields for the names, networks and users of the guest.
var guestFields = []Field{
	{Path: "hostname", Effect: Network},
	{Path: "subdomain", Effect: Network},
	{Path: "networks.name", Effect: Network},
	{Path: "networks.pod", Effect: Network},
	{
		Path: "networks.pod.vmNetworkCIDR", Effect: Network,
		Note: "10.0.2.0/24 unless set; with masquerade only, else a warning.",
	},
	{
		Path: "networks.pod.vmIPv6NetworkCIDR", Effect: Network,
		Note: "fd10:0:2::/120 unless set; with masquerade only, else a warning.",
	},
	{
		Path: "networks.multus.networkName", Effect: Network,
		Note: "A NetworkAttachmentDefinition, NAME or NAMESPACE/NAME; docs/networking.md.",
	},
	{Path: "networks.multus.default", Effect: Network, Note: "In place of the pod network."},
	{Path: "dnsPolicy", Effect: Pod, Only: dnsPolicies},
	{Path: "dnsConfig", Effect: Pod},
	{
		Path: "accessCredentials.sshPublicKey.source.secret.secretName", Effect: Pod,
		Note: "Its values are lines of authorized_keys; the keys' names do not matter.",
	},
	{
		Path: "accessCredentials.sshPublicKey.propagationMethod.noCloud", Effect: CloudInit,
		Note: "Needs a cloudInitNoCloud volume. Read when the guest starts.",
	},
	{
		Path: "accessCredentials.sshPublicKey.propagationMethod.configDrive", Effect: CloudInit,
		Note: "Needs a cloudInitConfigDrive volume. Read when the guest starts.",
	},
	{
		Path: "accessCredentials.sshPublicKey.propagationMethod.qemuGuestAgent.users", Effect: Agent,
		Note: "Follows the Secret while the guest runs; replaces the users' authorized_keys.",
	},
	{
		Path: "accessCredentials.userPassword.source.secret.secretName", Effect: Pod,
		Note: "Each key is a user, its value the password.",
	},
	{
		Path: "accessCredentials.userPassword.propagationMethod.qemuGuestAgent", Effect: Agent,
		Note: "Follows the Secret while the guest runs.",
	},
}

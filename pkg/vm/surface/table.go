package surface

import (
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/migrations/v1alpha1"
	poolv1beta1 "kubevirt.io/api/pool/v1beta1"
)

// Kinds returns the table of each kind that virt-api admits.
func Kinds() []Kind {
	return append([]Kind{
		{
			Name: "VirtualMachine", Fields: virtualMachineFields(), prototype: v1.VirtualMachineSpec{},
			own: machineFields, rest: "And under `spec.template.spec` everything of a VirtualMachineInstance, below.",
		},
		{Name: "VirtualMachineInstance", Fields: instanceFields, prototype: v1.VirtualMachineInstanceSpec{}},
		{
			Name: "VirtualMachineInstanceReplicaSet", Fields: below(replicaSetFields, "template.spec.", instanceFields),
			prototype: v1.VirtualMachineInstanceReplicaSetSpec{},
			own:       replicaSetFields,
			rest:      "And under `spec.template.spec` everything of a VirtualMachineInstance, above.",
		},
		{
			Name: "VirtualMachinePool", Fields: below(poolFields, "virtualMachineTemplate.spec.",
				virtualMachineFields()), prototype: poolv1beta1.VirtualMachinePoolSpec{},
			own:  poolFields,
			rest: "And under `spec.virtualMachineTemplate.spec` everything of a VirtualMachine, above.",
		},
		{
			Name: "VirtualMachineInstanceMigration", Fields: migrationFields,
			prototype: v1.VirtualMachineInstanceMigrationSpec{},
		},
		{Name: "MigrationPolicy", Fields: policyFields, prototype: v1alpha1.MigrationPolicySpec{}},
		{Name: "KubeVirt", Fields: kubeVirtFields, prototype: v1.KubeVirtSpec{}},
	}, copyKinds()...)
}

// virtualMachineFields returns a VirtualMachine's own fields, and the VMI's below template.spec.
func virtualMachineFields() []Field {
	return below(machineFields, "template.spec.", instanceFields)
}

// below returns a kind's own fields, and those of what it has at the path that prefix ends.
func below(own []Field, prefix string, inner []Field) []Field {
	fields := append([]Field(nil), own...)
	for _, f := range inner {
		f.Path = prefix + f.Path
		fields = append(fields, f)
	}
	return fields
}

var machineFields = []Field{
	{Path: "running", Effect: Life, Note: "Deprecated by KubeVirt: true is the run strategy Always, false is Halted."},
	{Path: "runStrategy", Effect: Life, Only: runStrategies},
	{Path: "instancetype.name", Effect: Domain},
	{Path: "instancetype.kind", Effect: Domain, Note: "VirtualMachineClusterInstancetype unless set."},
	{Path: "instancetype.revisionName", Effect: Domain, Note: "The revision in use is in status.instancetypeRef."},
	{
		Path: "instancetype.inferFromVolume", Effect: Domain,
		Note: "From the labels of a PersistentVolumeClaim, when the VM is admitted.",
	},
	{Path: "instancetype.inferFromVolumeFailurePolicy", Effect: Domain, Only: inferPolicies},
	{Path: "preference.name", Effect: Domain},
	{Path: "preference.kind", Effect: Domain, Note: "VirtualMachineClusterPreference unless set."},
	{Path: "preference.revisionName", Effect: Domain, Note: "The revision in use is in status.preferenceRef."},
	{Path: "preference.inferFromVolume", Effect: Domain, Note: "From the labels of a PersistentVolumeClaim, when the " +
		"VM is admitted."},
	{Path: "preference.inferFromVolumeFailurePolicy", Effect: Domain, Only: inferPolicies},
	{Path: "dataVolumeTemplates", Effect: Life, Note: "Needs CDI in the cluster; docs/datavolumes.md."},
	{
		Path: "updateVolumesStrategy", Effect: Life, Only: volumeStrategies,
		Note: "Migration copies the disks of a running guest to the claims that its volumes name now; " +
			"docs/volumes.md.",
	},
	{Path: "template.metadata.labels", Effect: Pod, Note: "On the instance and its pod."},
	{Path: "template.metadata.annotations", Effect: Pod, Note: annotationsNote},
}

// annotationsNote is about the annotations of a template.
const annotationsNote = "On the instance and its pod. `disk.virtkit.io/NAME` and `interface.virtkit.io/NAME` are " +
	"rate limits, which virtkit adds to KubeVirt's API (docs/volumes.md, docs/networking.md); " +
	"`kubernetes.io/ingress-bandwidth` " +
	"and `kubernetes.io/egress-bandwidth` are for the pod's CNI plugins, as in KubeVirt."

var inferPolicies = []string{string(v1.RejectInferFromVolumeFailure), string(v1.IgnoreInferFromVolumeFailure)}

var runStrategies = []string{
	string(v1.RunStrategyAlways), string(v1.RunStrategyRerunOnFailure), string(v1.RunStrategyManual),
	string(v1.RunStrategyHalted), string(v1.RunStrategyOnce),
}

var volumeStrategies = []string{
	string(v1.UpdateVolumesStrategyMigration), string(v1.UpdateVolumesStrategyReplacement),
}

var updateMethods = []string{string(v1.WorkloadUpdateMethodLiveMigrate), string(v1.WorkloadUpdateMethodEvict)}

var (
	rolloutStrategies = []string{string(v1.VMRolloutStrategyLiveUpdate), string(v1.VMRolloutStrategyStage)}
	attachmentTypes   = []string{string(v1.Tap), string(v1.ManagedTap)}
	bindings          = []string{"masquerade", "bridge"}
)

var referencePolicies = []string{string(v1.Reference), string(v1.Expand), string(v1.ExpandAll)}

var supportContainers = []string{string(v1.GuestConsoleLog), string(v1.HotplugAttachment)}

var kubeVirtFields = []Field{
	{Path: "certificateRotateStrategy.selfSigned.ca.duration", Effect: Install},
	{Path: "certificateRotateStrategy.selfSigned.ca.renewBefore", Effect: Install},
	{Path: "certificateRotateStrategy.selfSigned.server.duration", Effect: Install},
	{Path: "certificateRotateStrategy.selfSigned.server.renewBefore", Effect: Install},
	{
		Path: "workloadUpdateStrategy.workloadUpdateMethods", Effect: Life, Only: updateMethods,
		Note: "What may be done to guests whose virt-launcher is older; nothing unless set. docs/upgrade.md.",
	},
	{Path: "workloadUpdateStrategy.batchEvictionSize", Effect: Life, Note: "10 unless set."},
	{Path: "workloadUpdateStrategy.batchEvictionInterval", Effect: Life, Note: "1m unless set."},
	{Path: "infra.replicas", Effect: Install, Note: "How many virt-api and virt-controller there are; 2 unless set. " +
		"By the next `virtctl install`, as all that is said of the components here."},
	{Path: "infra.nodePlacement.nodeSelector", Effect: Install, Note: "Of the nodes for virt-api and virt-controller."},
	{
		Path: "infra.nodePlacement.affinity", Effect: Install,
		Note: "Goes on after that which keeps the pods of one component apart.",
	},
	{Path: "infra.nodePlacement.tolerations", Effect: Install, Note: "Besides that of CriticalAddonsOnly."},
	{
		Path: "workloads.nodePlacement.nodeSelector", Effect: Install,
		Note: "Of the nodes for virt-handler, and so for guests.",
	},
	{Path: "workloads.nodePlacement.affinity", Effect: Install},
	{
		Path: "workloads.nodePlacement.tolerations", Effect: Install,
		Note: "virt-handler's; guests have those of their VMs.",
	},
	{
		Path: "imagePullPolicy", Effect: Install, Only: pullPolicies,
		Note: "Of the components; `virtctl install --image-pull-policy` goes before.",
	},
	{Path: "imagePullSecrets", Effect: Install, Note: "Of the components' pods."},
	{Path: "monitorNamespace", Effect: Install, Note: "Of the Prometheus that is to read the metrics; by the next " +
		"`virtctl install`. docs/observe.md."},
	{Path: "monitorAccount", Effect: Install, Note: "Its ServiceAccount; prometheus-k8s unless set."},
	{
		Path: "configuration.apiConfiguration.restClient.rateLimiter.tokenBucketRateLimiter.qps", Effect: Install,
		Note: "Requests of virt-api to the API server, a second; 200 and 400 unless set. Followed live.",
	},
	{
		Path: "configuration.apiConfiguration.restClient.rateLimiter.tokenBucketRateLimiter.burst", Effect: Install,
		Note: "How many at once after a pause.",
	},
	{
		Path:   "configuration.controllerConfiguration.restClient.rateLimiter.tokenBucketRateLimiter.qps",
		Effect: Install,
		Note:   "Requests of virt-controller to the API server, a second; no limit unless set. Followed live.",
	},
	{
		Path:   "configuration.controllerConfiguration.restClient.rateLimiter.tokenBucketRateLimiter.burst",
		Effect: Install,
		Note:   "How many at once after a pause.",
	},
	{
		Path: "configuration.handlerConfiguration.restClient.rateLimiter.tokenBucketRateLimiter.qps", Effect: Install,
		Note: "Requests of each virt-handler to the API server, a second; 50 and 100 unless set. Followed live.",
	},
	{
		Path: "configuration.handlerConfiguration.restClient.rateLimiter.tokenBucketRateLimiter.burst", Effect: Install,
		Note: "How many at once after a pause.",
	},
	{
		Path: "configuration.tlsConfiguration.minTLSVersion", Effect: Install, Only: minTLSVersions,
		Note: "The components speak TLS 1.3, whichever is set.",
	},
	{
		Path: "uninstallStrategy", Effect: Install, Only: uninstallStrategies,
		Note: "`virtctl uninstall` never removes virtual machines unless --delete-vms is given.",
	},
	{Path: "configuration.architectureConfiguration.defaultArchitecture", Effect: Install, Only: architectures},
	{Path: "configuration.architectureConfiguration.amd64.machineType", Effect: Domain},
	{Path: "configuration.machineType", Effect: Domain},
	{Path: "configuration.cpuModel", Effect: Domain},
	{
		Path: "configuration.obsoleteCPUModels", Effect: Install,
		Note: "Models for which nodes get no label, besides those of KubeVirt's; false takes one of those back.",
	},
	{Path: "configuration.cpuRequest", Effect: Pod},
	{
		Path: "configuration.emulatedMachines", Effect: Install,
		Note: "Deprecated by KubeVirt; see architectureConfiguration.",
	},
	{
		Path: "configuration.architectureConfiguration.amd64.emulatedMachines", Effect: Install,
		Note: "Patterns of the machine types that guests may have. `q35*` and `pc-q35*` unless set.",
	},
	{
		Path: "configuration.smbios.manufacturer", Effect: Domain,
		Note: "KubeVirt unless set. Of guests that are started from then on, as all of smbios.",
	},
	{Path: "configuration.smbios.product", Effect: Domain, Note: "None unless set."},
	{Path: "configuration.smbios.version", Effect: Domain},
	{Path: "configuration.smbios.sku", Effect: Domain},
	{Path: "configuration.smbios.family", Effect: Domain, Note: "KubeVirt unless set."},
	{
		Path: "configuration.network.defaultNetworkInterface", Effect: Network, Only: bindings,
		Note: "Of interfaces of the pod network that name no binding. masquerade unless set.",
	},
	{
		Path: "configuration.network.permitBridgeInterfaceOnPodNetwork", Effect: Network,
		Note: "Whether guests may have the pod's own address; true unless set.",
	},
	{
		Path: "configuration.network.binding.*.domainAttachmentType", Effect: Network, Only: attachmentTypes,
		Note: "Of network binding plugins: tap is one that the CNI plugin has made, managedTap a bridge and a tap " +
			"that virtkit makes; docs/networking.md.",
	},
	{
		Path: "configuration.network.binding.*.networkAttachmentDefinition", Effect: Pod,
		Note: "Called for the pods of guests with the plugin, with the argument logicNetworkName.",
	},
	{
		Path: "configuration.network.binding.*.migration", Effect: Life,
		Note: "On the pod network a guest with the plugin can migrate only if it is there.",
	},
	{
		Path: "configuration.network.binding.*.computeResourceOverhead.requests.memory", Effect: Pod,
		Note: "Once for each plugin that a guest has, beyond the rest of the overhead.",
	},
	{
		Path: "configuration.instancetype.referencePolicy", Effect: Life, Only: referencePolicies,
		Note: "`expand` writes what a new VM's instance type and preference make of it into the VM, `expandAll` also " +
			"at each change of one that has them; docs/instancetypes.md.",
	},
	{
		Path: "configuration.virtualMachineInstancesPerNode", Effect: Install,
		Note: "With KVM, which is what each asks its node for; 1000 unless set. Followed live.",
	},
	{Path: "configuration.autoCPULimitNamespaceLabelSelector", Effect: Pod, Note: "Guests in namespaces with these " +
		"labels get no more CPU time than their vCPUs, unless they say a limit or have CPUs of their own."},
	{
		Path: "configuration.supportContainerResources.type", Effect: Pod, Only: supportContainers,
		Note: "There are no other containers beside guests' to which KubeVirt gives resources.",
	},
	{
		Path: "configuration.supportContainerResources.resources.requests", Effect: Pod,
		Note: "Of a guest with CPUs of its own, guest-console-log keeps what makes the pod Guaranteed.",
	},
	{Path: "configuration.supportContainerResources.resources.limits", Effect: Pod},
	{
		Path: "configuration.permittedHostDevices.pciHostDevices.pciVendorSelector", Effect: Install,
		Note: "virt-handler offers what is bound to a vfio-pci driver; docs/devices.md.",
	},
	{Path: "configuration.permittedHostDevices.pciHostDevices.resourceName", Effect: Install},
	{
		Path: "configuration.permittedHostDevices.pciHostDevices.externalResourceProvider", Effect: Install,
		Note: "Another device plugin offers it.",
	},
	{Path: "configuration.permittedHostDevices.mediatedDevices.mdevNameSelector", Effect: Install},
	{Path: "configuration.permittedHostDevices.mediatedDevices.resourceName", Effect: Install},
	{Path: "configuration.permittedHostDevices.mediatedDevices.externalResourceProvider", Effect: Install},
	{Path: "configuration.permittedHostDevices.usb.resourceName", Effect: Install},
	{Path: "configuration.permittedHostDevices.usb.selectors.vendor", Effect: Install},
	{Path: "configuration.permittedHostDevices.usb.selectors.product", Effect: Install},
	{Path: "configuration.permittedHostDevices.usb.externalResourceProvider", Effect: Install},
	{Path: "configuration.imagePullPolicy", Effect: Pod, Only: pullPolicies},
	{Path: "configuration.defaultRuntimeClass", Effect: Pod},
	{Path: "configuration.vmStateStorageClass", Effect: Pod, Note: "Of the claims for persistent TPMs and EFI " +
		"variables, which are then ReadWriteMany; the default class and ReadWriteOnce unless set."},
	{Path: "configuration.additionalGuestMemoryOverheadRatio", Effect: Pod},
	{
		Path: "configuration.memBalloonStatsPeriod", Effect: Domain,
		Note: "Seconds; 0 is never, 10 unless set. Of guests that are started from then on.",
	},
	{
		Path: "configuration.virtualMachineOptions.disableFreePageReporting", Effect: Domain,
		Note: "Of guests that are started from then on; never for guests with CPUs or huge pages of their own.",
	},
	{
		Path: "configuration.evictionStrategy", Effect: Life, Note: "Of instances that name none. None unless set.",
		Only: evictionStrategies,
	},
	{Path: "configuration.migrations.parallelMigrationsPerCluster", Effect: Life, Note: "5 unless set."},
	{Path: "configuration.migrations.parallelOutboundMigrationsPerNode", Effect: Life, Note: "2 unless set."},
	{Path: "configuration.migrations.nodeDrainTaintKey", Effect: Life, Note: "Of a taint with effect NoSchedule: the " +
		"guests leave the node; docs/drain.md. kubevirt.io/drain unless set."},
	{
		Path: "configuration.migrations.bandwidthPerMigration", Effect: Life,
		Note: "Bytes a second, of memory and of each disk that is copied; 0 is no limit.",
	},
	{
		Path: "configuration.migrations.completionTimeoutPerGiB", Effect: Life,
		Note: "Seconds for each GiB of memory and copied disks, rounded up; 150 unless set, 0 is no limit.",
	},
	{Path: "configuration.migrations.progressTimeout", Effect: Life, Note: "Seconds; 150 unless set, 0 is no limit."},
	{Path: "configuration.migrations.allowAutoConverge", Effect: Life},
	{Path: "configuration.migrations.allowPostCopy", Effect: Life},
	{Path: "configuration.migrations.allowWorkloadDisruption", Effect: Life, Note: "As allowPostCopy unless set."},
	{Path: "configuration.migrations.unsafeMigrationOverride", Effect: Life},
	{
		Path: "configuration.virtualMachineOptions.disableSerialConsoleLog", Effect: Pod,
		Note: "Goes before the feature gate SerialConsoleLog.",
	},
	{
		Path: "configuration.developerConfiguration.featureGates", Effect: Life,
		Note: "`HostDisk`, `HostDevices`, `DownwardMetrics`, `VSOCK`, `HypervStrictCheck` (guests go to nodes only " +
			"whose KVM has what they need of Hyper-V) and `SerialConsoleLog`, which gives guests that do not say the " +
			"container guest-console-log, are closed unless named here. `Snapshot`, which KubeVirt has closed unless " +
			"it is named, is open unless disabledFeatureGates names it. The rest of what KubeVirt gates virtkit has " +
			"always, or not at all; a warning says so.",
	},
	{
		Path: "configuration.developerConfiguration.disabledFeatureGates", Effect: Life,
		Note: "Goes before featureGates. `Snapshot` here refuses new snapshots, restores and clones, in KubeVirt's " +
			"words.",
	},
	{
		Path: "configuration.vmRolloutStrategy", Effect: Life, Only: rolloutStrategies,
		Note: "What becomes of a changed size of a VM that runs: LiveUpdate unless set; docs/hotplug.md.",
	},
	{Path: "configuration.liveUpdateConfiguration.maxHotplugRatio", Effect: Domain, Note: "4 unless set."},
	{
		Path: "configuration.liveUpdateConfiguration.maxCpuSockets", Effect: Domain,
		Note: "Of instances that do not set domain.cpu.maxSockets.",
	},
	{
		Path: "configuration.liveUpdateConfiguration.maxGuest", Effect: Domain,
		Note: "Of instances that do not set domain.memory.maxGuest.",
	},
	{Path: "configuration.developerConfiguration.useEmulation", Effect: Domain},
	{Path: "configuration.developerConfiguration.cpuAllocationRatio", Effect: Pod},
	{Path: "configuration.developerConfiguration.memoryOvercommit", Effect: Pod},
	{Path: "configuration.developerConfiguration.nodeSelectors", Effect: Pod},
	{Path: "configuration.developerConfiguration.minimumClusterTSCFrequency", Effect: Pod, Note: "Of guests with the " +
		"CPU feature invtsc or Hyper-V's reenlightenment, ticks a second; the lowest of the nodes' unless set."},
	{Path: "configuration.developerConfiguration.logVerbosity.virtAPI", Effect: Install},
	{Path: "configuration.developerConfiguration.logVerbosity.virtController", Effect: Install},
	{Path: "configuration.developerConfiguration.logVerbosity.virtHandler", Effect: Install},
	{
		Path: "configuration.developerConfiguration.logVerbosity.virtLauncher", Effect: Pod,
		Note: "Of the pods that are made from then on; the label logVerbosity of an instance goes before it.",
	},
	{
		Path: "configuration.developerConfiguration.logVerbosity.virtOperator", Effect: Install,
		Note: "Accepted for KubeVirt's virtctl; there is no virt-operator.",
	},
	{
		Path: "configuration.developerConfiguration.logVerbosity.nodeVerbosity", Effect: Install,
		Note: "Of virt-handler on the nodes.",
	},
}

package surface

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	v1 "kubevirt.io/api/core/v1"
)

// guide is what KubeVirt's examples and user guide have a VM do, chapter by chapter, in our own words: the sections of
// an instance's spec that each adds to a plain guest, and, for what virtkit refuses, the start of the message.
var guide = map[string]struct{ spec, refused string }{
	// Virtual hardware.
	"machine and firmware": {
		`domain: {machine: {type: q35}, firmware: {uuid: 5d307ca9-b3ef-428c-8861-06e72d69f223, serial: e4686d2c-6e8d-4335-b8fd-81bee22f4815}}`,
		``,
	},
	"UEFI": {`domain: {firmware: {bootloader: {efi: {secureBoot: false}}}}`, ``},
	"Secure Boot": {
		`domain: {features: {smm: {enabled: true}}, firmware: {bootloader: {efi: {secureBoot: true}}}}`, ``,
	},
	"persistent EFI variables": {`domain: {firmware: {bootloader: {efi: {persistent: true, secureBoot: false}}}}`, ``},
	"kernel boot": {
		`domain: {firmware: {kernelBoot: {container: {image: vmlinux, kernelPath: /boot/vmlinuz, initrdPath: /boot/initrd}, kernelArgs: console=ttyS0}}}`,
		``,
	},
	"SLIC table": {
		"domain: {firmware: {acpi: {slicNameRef: slic}}}\nvolumes+: [{name: slic, secret: {secretName: slic}}]", ``,
	},
	"SMBIOS chassis": {`domain: {chassis: {manufacturer: Acme, sku: "1"}}`, ``},
	"CPU topology and model": {
		`domain: {cpu: {sockets: 2, cores: 2, threads: 1, model: Conroe, features: [{name: apic, policy: require}]}}`,
		``,
	},
	"CPU of the host": {`domain: {cpu: {model: host-passthrough}}`, ``},
	"clock": {
		`domain: {clock: {utc: {}, timer: {hpet: {present: false}, pit: {tickPolicy: delay}, rtc: {tickPolicy: catchup, track: guest}, hyperv: {}, kvm: {present: true}}}}`,
		``,
	},
	"features": {`domain: {features: {acpi: {}, apic: {}, kvm: {hidden: true}, pvspinlock: {enabled: true}}}`, ``},
	"Windows": {
		`domain: {features: {acpi: {}, apic: {}, hyperv: {relaxed: {}, vapic: {}, spinlocks: {spinlocks: 8191}, synic: {}, synictimer: {direct: {}}, vpindex: {}, runtime: {}, reset: {}, vendorid: {vendorid: vendor}, frequencies: {}, reenlightenment: {}, tlbflush: {}, ipi: {}}}, devices: {tpm: {}, inputs: [{name: tablet, bus: usb, type: tablet}]}}`,
		``,
	},
	"Hyper-V passthrough": {`domain: {features: {hypervPassthrough: {enabled: true}}}`, ``},
	"dedicated CPUs": {
		`domain: {cpu: {cores: 2, dedicatedCpuPlacement: true, isolateEmulatorThread: true}, resources: {limits: {memory: 1Gi}}}`,
		``,
	},
	"NUMA": {
		`domain: {cpu: {cores: 2, dedicatedCpuPlacement: true, numa: {guestMappingPassthrough: {}}}, memory: {hugepages: {pageSize: 2Mi}}, resources: {limits: {memory: 1Gi}}}`,
		``,
	},
	"real time": {
		`domain: {cpu: {cores: 2, dedicatedCpuPlacement: true, numa: {guestMappingPassthrough: {}}, realtime: {mask: 0-1}}, memory: {hugepages: {pageSize: 2Mi}}, resources: {limits: {memory: 1Gi}}}`,
		``,
	},
	"huge pages":        {`domain: {memory: {hugepages: {pageSize: 2Mi}}, resources: {requests: {memory: 1Gi}}}`, ``},
	"memory overcommit": {`domain: {resources: {overcommitGuestOverhead: true, requests: {memory: 512Mi}}}`, ``},
	"room to grow":      {`domain: {cpu: {sockets: 1, maxSockets: 4}, memory: {guest: 1Gi, maxGuest: 4Gi}}`, ``},
	"watchdog":          {`domain: {devices: {watchdog: {name: mywatchdog, i6300esb: {action: poweroff}}}}`, ``},
	"TPM that stays":    {`domain: {devices: {tpm: {persistent: true}}}`, ``},
	"video":             {`domain: {devices: {video: {type: virtio}}}`, ``},
	"headless": {
		`domain: {devices: {autoattachGraphicsDevice: false, autoattachSerialConsole: false, autoattachMemBalloon: false, autoattachPodInterface: false}}`,
		``,
	},
	"sound":                   {`domain: {devices: {sound: {name: audio, model: ich9}}}`, ``},
	"random numbers":          {`domain: {devices: {rng: {}}}`, ``},
	"panic device":            {`domain: {devices: {panicDevices: [{model: pvpanic}]}}`, ``},
	"USB redirection":         {`domain: {devices: {clientPassthrough: {}}}`, ``},
	"vsock":                   {`domain: {devices: {autoattachVSOCK: true}}`, ``},
	"downward metrics device": {`domain: {devices: {downwardMetrics: {}}}`, ``},
	"console log":             {`domain: {devices: {logSerialConsole: true}}`, ``},
	"GPU": {
		`domain: {devices: {gpus: [{name: gpu1, deviceName: nvidia.com/GP102GL, virtualGPUOptions: {display: {enabled: true, ramFB: {enabled: false}}}}]}}`,
		``,
	},
	"host device": {`domain: {devices: {hostDevices: [{name: qat, deviceName: intel.com/qat}]}}`, ``},
	"device by a claim": {
		`domain: {devices: {hostDevices: [{name: qat, claimName: c, requestName: r}]}}`,
		`spec.domain.devices.hostDevices[0].claimName`,
	},
	"memory encryption": {
		`domain: {launchSecurity: {sev: {}}, firmware: {bootloader: {efi: {secureBoot: false}}}}`, ``,
	},
	"SEV-ES": {
		`domain: {launchSecurity: {sev: {policy: {encryptedState: true}}}, firmware: {bootloader: {efi: {secureBoot: false}}}}`,
		``,
	},
	"SEV-SNP": {
		`domain: {launchSecurity: {snp: {}}, firmware: {bootloader: {efi: {secureBoot: false}}}}`,
		`spec.domain.launchSecurity.snp`,
	},
	"TDX": {
		`domain: {launchSecurity: {tdx: {}}, firmware: {bootloader: {efi: {secureBoot: false}}}}`,
		`spec.domain.launchSecurity.tdx`,
	},
	"attestation": {
		`{startStrategy: Paused, domain: {launchSecurity: {sev: {attestation: {}}}, firmware: {bootloader: {efi: {secureBoot: false}}}}}`,
		`spec.domain.launchSecurity.sev.attestation`,
	},

	// Disks and volumes.
	"disk buses": {
		`{domain: {devices: {disks+: [{name: a, disk: {bus: sata}}, {name: b, disk: {bus: scsi}}, {name: c, disk: {bus: usb}}]}}, volumes+: [{name: a, emptyDisk: {capacity: 1Gi}}, {name: b, emptyDisk: {capacity: 1Gi}}, {name: c, emptyDisk: {capacity: 1Gi}}]}`,
		``,
	},
	"LUN": {
		`{domain: {devices: {disks+: [{name: a, lun: {bus: scsi}}]}}, volumes+: [{name: a, persistentVolumeClaim: {claimName: lun}}]}`,
		``,
	},
	"CD-ROM": {
		`{domain: {devices: {disks+: [{name: a, bootOrder: 2, cdrom: {bus: sata, readonly: true, tray: closed}}]}}, volumes+: [{name: a, persistentVolumeClaim: {claimName: iso}}]}`,
		``,
	},
	"empty CD-ROM": {`domain: {devices: {disks+: [{name: cdrom, cdrom: {bus: sata}}]}}`, ``},
	"CD-ROM to inject": {
		`{domain: {devices: {disks+: [{name: cdrom, cdrom: {bus: sata}}]}}, volumes+: [{name: cdrom, dataVolume: {name: hotplug-disk, hotpluggable: true}}]}`,
		``,
	},
	"hotplugged disk": {
		`{domain: {devices: {disks+: [{name: disk1, disk: {bus: virtio}}]}}, volumes+: [{name: disk1, dataVolume: {name: hotplug-disk, hotpluggable: true}}]}`,
		``,
	},
	"disk tuning": {
		`{domain: {ioThreadsPolicy: shared, devices: {blockMultiQueue: true, disks+: [{name: a, serial: CVLY623300HK240D, cache: none, io: native, errorPolicy: report, dedicatedIOThread: true, blockSize: {matchVolume: {}}, disk: {bus: virtio}}]}}, volumes+: [{name: a, persistentVolumeClaim: {claimName: fast}}]}`,
		``,
	},
	"pool of IO threads": {
		`domain: {ioThreadsPolicy: supplementalPool, ioThreads: {supplementalPoolThreadCount: 4}}`, ``,
	},
	"block size": {
		`{domain: {devices: {disks+: [{name: a, blockSize: {custom: {logical: 512, physical: 4096}}, disk: {bus: virtio}}]}}, volumes+: [{name: a, emptyDisk: {capacity: 1Gi}}]}`,
		``,
	},
	"shared disk": {
		`{domain: {devices: {disks+: [{name: a, shareable: true, cache: none, disk: {bus: virtio}}]}}, volumes+: [{name: a, persistentVolumeClaim: {claimName: shared}}]}`,
		``,
	},
	"DataVolume": {
		`{domain: {devices: {disks+: [{name: a, disk: {bus: virtio}}]}}, volumes+: [{name: a, dataVolume: {name: imported}}]}`,
		``,
	},
	"ephemeral": {
		`{domain: {devices: {disks+: [{name: a, disk: {bus: virtio}}]}}, volumes+: [{name: a, ephemeral: {persistentVolumeClaim: {claimName: base}}}]}`,
		``,
	},
	"host disk": {
		`{domain: {devices: {disks+: [{name: a, disk: {bus: virtio}}]}}, volumes+: [{name: a, hostDisk: {path: /data/disk.img, type: DiskOrCreate, capacity: 1Gi}}]}`,
		``,
	},
	"config map": {
		`{domain: {devices: {disks+: [{name: a, serial: CVLY, disk: {}}]}}, volumes+: [{name: a, configMap: {name: app}}]}`,
		``,
	},
	"secret": {
		`{domain: {devices: {disks+: [{name: a, serial: D23Y, disk: {}}]}}, volumes+: [{name: a, secret: {secretName: app}}]}`,
		``,
	},
	"service account": {
		`{domain: {devices: {disks+: [{name: a, disk: {}}]}}, volumes+: [{name: a, serviceAccount: {serviceAccountName: default}}]}`,
		``,
	},
	"downward API": {
		`{domain: {devices: {disks+: [{name: a, disk: {}}]}}, volumes+: [{name: a, downwardAPI: {fields: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}]}`,
		``,
	},
	"downward metrics disk": {
		`{domain: {devices: {disks+: [{name: a, disk: {bus: virtio}}]}}, volumes+: [{name: a, downwardMetrics: {}}]}`,
		``,
	},
	"virtiofs config map": {
		`{domain: {devices: {filesystems: [{name: config-fs, virtiofs: {}}]}}, volumes+: [{name: config-fs, configMap: {name: app-config}}]}`,
		``,
	},
	"virtiofs secret": {
		`{domain: {devices: {filesystems: [{name: secret-fs, virtiofs: {}}]}}, volumes+: [{name: secret-fs, secret: {secretName: app-secret}}]}`,
		``,
	},
	"virtiofs account": {
		`{domain: {devices: {filesystems: [{name: serviceaccount-fs, virtiofs: {}}]}}, volumes+: [{name: serviceaccount-fs, serviceAccount: {serviceAccountName: default}}]}`,
		``,
	},
	"virtiofs downward API": {
		`{domain: {devices: {filesystems: [{name: downwardapi-fs, virtiofs: {}}]}}, volumes+: [{name: downwardapi-fs, downwardAPI: {fields: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}]}`,
		``,
	},
	"virtiofs claim": {
		`{domain: {devices: {filesystems: [{name: virtiofs-disk, virtiofs: {}}]}}, volumes+: [{name: virtiofs-disk, persistentVolumeClaim: {claimName: mypvc}}]}`,
		``,
	},
	"virtiofs data volume": {
		`{domain: {devices: {filesystems: [{name: virtiofs-disk, virtiofs: {}}]}}, volumes+: [{name: virtiofs-disk, dataVolume: {name: nfs}}]}`,
		``,
	},
	"sysprep": {
		`{domain: {devices: {disks+: [{name: a, cdrom: {bus: sata}}]}}, volumes+: [{name: a, sysprep: {configMap: {name: answers}}}]}`,
		``,
	},
	"cloud-init": {
		`{domain: {devices: {disks+: [{name: a, disk: {bus: virtio}}]}}, volumes+: [{name: a, cloudInitNoCloud: {userDataBase64: SGkuXG4=, networkData: "version: 2"}}]}`,
		``,
	},
	"cloud-init by secret": {
		`{domain: {devices: {disks+: [{name: a, disk: {bus: virtio}}]}}, volumes+: [{name: a, cloudInitConfigDrive: {secretRef: {name: seed}, networkDataSecretRef: {name: net}}}]}`,
		``,
	},
	"container disk": {
		`{domain: {devices: {disks+: [{name: a, disk: {}}]}}, volumes+: [{name: a, containerDisk: {image: registry:5000/org/disk@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef, path: /custom/disk.qcow2, imagePullSecret: pull, imagePullPolicy: IfNotPresent}}]}`,
		``,
	},

	// Networks.
	"masquerade with ports": {
		`{domain: {devices: {interfaces: [{name: red, masquerade: {}, ports: [{name: http, port: 80, protocol: TCP}]}]}}, networks: [{name: red, pod: {vmNetworkCIDR: 10.11.12.0/24}}]}`,
		``,
	},
	"bridge on the pod network": {
		`{domain: {devices: {interfaces: [{name: red, bridge: {}}]}}, networks: [{name: red, pod: {}}]}`, ``,
	},
	"several networks": {
		`{domain: {devices: {interfaces: [{name: default, masquerade: {}, bootOrder: 1}, {name: ovs, bridge: {}, macAddress: 02:00:00:00:00:01, model: e1000, pciAddress: "0000:81:00.0", acpiIndex: 101}]}}, networks: [{name: default, pod: {}}, {name: ovs, multus: {networkName: ovs-vlan-100}}]}`,
		``,
	},
	"link down": {
		`{domain: {devices: {interfaces: [{name: default, masquerade: {}, state: down}]}}, networks: [{name: default, pod: {}}]}`,
		``,
	},
	"DHCP options": {
		`{domain: {devices: {interfaces: [{name: default, masquerade: {}, dhcpOptions: {bootFileName: default_image.bin, tftpServerName: tftp.example.com, ntpServers: [192.0.2.1], privateOptions: [{option: 240, value: extra}]}}]}}, networks: [{name: default, pod: {}}]}`,
		``,
	},
	"multiqueue": {`domain: {cpu: {cores: 2}, devices: {networkInterfaceMultiqueue: true}}`, ``},
	"SR-IOV": {
		`{domain: {devices: {interfaces: [{name: a, sriov: {}}]}}, networks: [{name: a, multus: {networkName: sriov}}]}`,
		``,
	},
	"network binding plugin": {
		`{domain: {devices: {interfaces: [{name: default, binding: {name: l2bridge}}]}}, networks: [{name: default, pod: {}}]}`,
		``,
	},
	"passt": {
		`{domain: {devices: {interfaces: [{name: default, passtBinding: {}}]}}, networks: [{name: default, pod: {}}]}`,
		`spec.domain.devices.interfaces[0].passtBinding`,
	},

	// The pod, its place and its life.
	"placement": {
		`{nodeSelector: {cpu: slow}, priorityClassName: vip, schedulerName: mine, tolerations: [{key: key, operator: Equal, value: virtualization, effect: NoSchedule}], affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: disktype, operator: In, values: [ssd]}]}]}}}, topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]}`,
		``,
	},
	"probes": {
		`{readinessProbe: {initialDelaySeconds: 120, periodSeconds: 20, timeoutSeconds: 10, failureThreshold: 3, successThreshold: 3, httpGet: {port: 1500, path: /}}, livenessProbe: {initialDelaySeconds: 120, periodSeconds: 20, guestAgentPing: {}}}`,
		``,
	},
	"probe by command": {`readinessProbe: {exec: {command: [cat, /tmp/healthy.txt]}}`, ``},
	"host name and DNS": {
		`{hostname: my, subdomain: vms, dnsPolicy: None, dnsConfig: {nameservers: [1.1.1.1], searches: [a.example], options: [{name: ndots, value: "2"}]}}`,
		``,
	},
	"start paused": {`startStrategy: Paused`, ``},
	"drain":        {`evictionStrategy: LiveMigrateIfPossible`, ``},
	"grace period": {`terminationGracePeriodSeconds: 3600`, ``},
	"keys and passwords": {
		`{accessCredentials: [{sshPublicKey: {source: {secret: {secretName: keys}}, propagationMethod: {qemuGuestAgent: {users: [fedora]}}}}, {userPassword: {source: {secret: {secretName: passwords}}, propagationMethod: {qemuGuestAgent: {}}}}]}`,
		``,
	},
}

func TestGuide(t *testing.T) {
	for name, tc := range guide {
		t.Run(name, func(t *testing.T) {
			vm := &v1.VirtualMachine{}
			vm.Name = "vm"
			running := v1.RunStrategyAlways
			vm.Spec.RunStrategy = &running
			vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{}
			text, err := yaml.Marshal(added(t, tc.spec))
			if err != nil {
				t.Fatal(err)
			}
			if err := yaml.UnmarshalStrict(text, &vm.Spec.Template.Spec); err != nil {
				t.Fatal(err)
			}
			d := testDefaults
			d.Allowed.Gates = Gates{
				GateHostDisk: true, GateDownwardMetrics: true, GateVirtiofsStorage: true, GateHostDevices: true,
				GateVSOCK: true, GateWorkloadEncryptionSEV: true,
			}
			d.Allowed.Devices = map[string]bool{"nvidia.com/GP102GL": true, "intel.com/qat": true}
			d.Allowed.Bindings = map[string]v1.InterfaceBindingPlugin{"l2bridge": {DomainAttachmentType: v1.ManagedTap}}
			DefaultVirtualMachine(vm, nil, d)
			errs := ValidateVirtualMachine(vm, d)
			errs = append(errs,
				d.Allowed.Validate(&vm.Spec.Template.Spec, field.NewPath("spec", "template", "spec"))...)
			got := strings.ReplaceAll(Message(errs), "spec.template.spec.", "spec.")
			if tc.refused == "" && got != "" || !strings.HasPrefix(got, tc.refused) {
				t.Errorf("got  %s\nwant %q", got, tc.refused)
			}
		})
	}
}

// added is the plain guest's spec with sections set; a list whose name ends in + is added to that of the plain guest.
func added(t *testing.T, text string) map[string]any {
	t.Helper()
	var spec, more map[string]any
	if err := yaml.Unmarshal([]byte(basicSpec), &spec); err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict([]byte(text), &more); err != nil {
		t.Fatal(err)
	}
	merge(spec, more)
	return spec
}

func merge(into, more map[string]any) {
	for key, value := range more {
		name, appends := strings.CutSuffix(key, "+")
		section, ok := value.(map[string]any)
		before, both := into[name].(map[string]any)
		switch {
		case appends:
			list, _ := into[name].([]any)
			into[name] = append(list, value.([]any)...)
		case ok && both:
			merge(before, section)
		default:
			into[name] = value
		}
	}
}

package surface_test

import "maps"

func init() { maps.Copy(examples, hardwareExamples) }

const (
	withSecret = "{domain: {memory: {guest: 1Gi}, devices: {}}, volumes: [{name: root, secret: {secretName: s}}]}"
	withDrives = "volumes: [{name: root, cloudInitConfigDrive: {userData: x}}]"
	withLUN    = "domain: {memory: {guest: 1Gi}, devices: {disks: [{name: root, " +
		"lun: {}}]}}\nvolumes: [{name: root, persistentVolumeClaim: {claimName: c}}]"
	withTwoCPUs = "domain: {cpu: {cores: 2}, memory: {guest: 1Gi}, devices: {disks: [{name: root, " +
		"disk: {bus: virtio}}], interfaces: [{name: default, masquerade: {}}]}}"
	withPool = "domain: {ioThreadsPolicy: supplementalPool, memory: {guest: 1Gi}, " +
		"devices: {disks: [{name: root, disk: {bus: virtio}}]}}"
	withCard = "domain: {memory: {guest: 1Gi}, devices: {sound: {name: a}, disks: [{name: root, " +
		"disk: {bus: virtio}}]}}"
	withVendor = "domain: {memory: {guest: 1Gi}, features: {hyperv: {vendorid: {vendorid: x}}}, " +
		"devices: {disks: [{name: root, disk: {bus: virtio}}]}}"
	withEnlights = "domain: {memory: {guest: 1Gi}, features: {hyperv: {synictimer: {}, tlbflush: {}, " +
		"spinlocks: {}}}, devices: {disks: [{name: root, disk: {bus: virtio}}]}}"
)

var hardwareExamples = map[string]struct{ before, value string }{
	"domain.ioThreadsPolicy":                               {value: "shared"},
	"domain.ioThreads.supplementalPoolThreadCount":         {before: withPool, value: "3"},
	"domain.features.hypervPassthrough.enabled":            {value: "true"},
	"domain.features.hyperv.relaxed.enabled":               {value: "true"},
	"domain.features.hyperv.vapic.enabled":                 {value: "true"},
	"domain.features.hyperv.spinlocks.enabled":             {before: withEnlights, value: "false"},
	"domain.features.hyperv.spinlocks.spinlocks":           {before: withEnlights, value: "8191"},
	"domain.features.hyperv.vpindex.enabled":               {value: "true"},
	"domain.features.hyperv.runtime.enabled":               {value: "true"},
	"domain.features.hyperv.synic.enabled":                 {value: "true"},
	"domain.features.hyperv.synictimer.enabled":            {before: withEnlights, value: "false"},
	"domain.features.hyperv.synictimer.direct.enabled":     {before: withEnlights, value: "true"},
	"domain.features.hyperv.reset.enabled":                 {value: "true"},
	"domain.features.hyperv.vendorid.enabled":              {before: withVendor, value: "false"},
	"domain.features.hyperv.vendorid.vendorid":             {before: withVendor, value: "other"},
	"domain.features.hyperv.frequencies.enabled":           {value: "true"},
	"domain.features.hyperv.reenlightenment.enabled":       {value: "true"},
	"domain.features.hyperv.tlbflush.enabled":              {before: withEnlights, value: "false"},
	"domain.features.hyperv.tlbflush.direct.enabled":       {before: withEnlights, value: "true"},
	"domain.features.hyperv.tlbflush.extended.enabled":     {before: withEnlights, value: "true"},
	"domain.features.hyperv.ipi.enabled":                   {value: "true"},
	"domain.features.hyperv.evmcs.enabled":                 {value: "true"},
	"domain.firmware.acpi.slicNameRef":                     {before: withSecret, value: "root"},
	"domain.firmware.acpi.msdmNameRef":                     {before: withSecret, value: "root"},
	"domain.devices.clientPassthrough":                     {value: "{}"},
	"domain.devices.useVirtioTransitional":                 {value: "true"},
	"domain.devices.blockMultiQueue":                       {before: withTwoCPUs, value: "true"},
	"domain.devices.networkInterfaceMultiqueue":            {before: withTwoCPUs, value: "true"},
	"domain.devices.sound.name":                            {before: withCard, value: "b"},
	"domain.devices.sound.model":                           {before: withCard, value: "ac97"},
	"domain.devices.disks.disk.pciAddress":                 {value: "'0000:03:00.0'"},
	"domain.devices.disks.lun.bus":                         {before: withClaim, value: "scsi"},
	"domain.devices.disks.lun.readonly":                    {before: withLUN, value: "true"},
	"domain.devices.disks.dedicatedIOThread":               {value: "true"},
	"domain.devices.disks.tag":                             {before: withDrives, value: "a"},
	"domain.devices.disks.blockSize.matchVolume.enabled":   {value: "true"},
	"domain.devices.interfaces.pciAddress":                 {value: "'0000:03:00.0'"},
	"domain.devices.interfaces.acpiIndex":                  {value: "7"},
	"domain.devices.interfaces.tag":                        {before: withDrives, value: "a"},
	"domain.devices.interfaces.dhcpOptions.bootFileName":   {value: "b"},
	"domain.devices.interfaces.dhcpOptions.tftpServerName": {value: "t"},
	"domain.devices.interfaces.dhcpOptions.ntpServers":     {value: "[10.0.0.1]"},
	"domain.devices.interfaces.dhcpOptions.privateOptions": {value: "[{option: 240, value: x}]"},
}

// Package names holds what the components of virtkit must agree on and nothing else: resource
// names, ports, and the paths inside a launcher pod. It has no behaviour and imports nothing, so
// that every component, the slim launcher included, can depend on it.
//
// Kinds, labels and annotations of the API are not repeated here; they come from kubevirt.io/api.
package names

// What `virtctl install` creates.
const (
	// Namespace is where every component and the KubeVirt resource live.
	Namespace = "kubevirt"
	// KubeVirt is the name of the one configuration resource, kind KubeVirt.
	KubeVirt = "kubevirt"

	// Names of the workloads, which are also their ServiceAccounts and the values of LabelComponent.
	VirtAPI        = "virt-api"
	VirtController = "virt-controller"
	VirtHandler    = "virt-handler"
	VirtLauncher   = "virt-launcher"
	// VirtExportProxy is the Deployment, and the Service that an Ingress or Route names, through which exports are
	// reached from outside of the cluster; KubeVirt's.
	VirtExportProxy = "virt-exportproxy"

	// VirtFreezer is the program in a launcher pod that backup programs run.
	VirtFreezer = "virt-freezer"
	// AnnotationSkipBackupHooks, of the KubeVirt resource or a VMI, says with "true" that its pod has no hooks of
	// backup programs; KubeVirt's.
	AnnotationSkipBackupHooks = "kubevirt.io/skip-backup-hooks"

	// LabelComponent marks the pods of a component with its name. A launcher pod carries
	// `kubevirt.io: virt-launcher`, as KubeVirt's do.
	LabelComponent = "kubevirt.io"

	// CASecret holds the certificate authority's key and certificate (tls.key, tls.crt); only
	// virt-controller may read it.
	CASecret = "kubevirt-ca"
	// CABundle is the ConfigMap with every CA certificate to trust now, key CABundleKey.
	CABundle    = "kubevirt-ca"
	CABundleKey = "ca-bundle"
	// APICertSecret holds tls.crt, tls.key and ca.crt (the bundle). The certificate is valid for
	// serving and for calling, and only virt-api may read it.
	APICertSecret = "kubevirt-virt-api-certs"
	// OldHandlerCertSecret was the one of all virt-handlers together, which have a certificate for each node now.
	// virt-controller removes it.
	OldHandlerCertSecret = "kubevirt-virt-handler-certs"
	// SignerHandler is the signer of the certificates that virt-handlers ask for; it is virt-controller.
	SignerHandler = "virtkit.io/virt-handler"

	// CommonNameAPI is the subject of virt-api's certificate, CommonNameHandler and CommonNameGuests begin those of the
	// virt-handler of a node (HandlerOf, GuestsOf). A peer is authorised by them.
	CommonNameAPI     = "kubevirt.io:system:virt-api"
	CommonNameHandler = "kubevirt.io:system:virt-handler"
	CommonNameGuests  = "kubevirt.io:system:virt-handler-to-guests"
	// DNSNameAPI and DNSNameHandler are their subject alternative names.
	DNSNameAPI     = "virt-api.kubevirt.svc"
	DNSNameHandler = "virt-handler.kubevirt.svc"
	// ControllerCertSecret, CommonNameController: virt-controller's, which serves metrics only.
	ControllerCertSecret = "kubevirt-virt-controller-certs"
	CommonNameController = "kubevirt.io:system:virt-controller"
	// ExportProxyCertSecret, CommonNameExportProxy, DNSNameExportProxy: virt-exportproxy's.
	ExportProxyCertSecret = "kubevirt-virt-exportproxy-certs"
	CommonNameExportProxy = "kubevirt.io:system:virt-exportproxy"
	DNSNameExportProxy    = "virt-exportproxy.kubevirt.svc"
	// DNSNameMetrics is the name of the Service through which Prometheus finds all components, and one of each
	// certificate's.
	DNSNameMetrics = "kubevirt-prometheus-metrics.kubevirt.svc"

	// MutatingWebhook and ValidatingWebhook are the admission configurations whose caBundle
	// virt-controller keeps current; so it does for the APIServices.
	MutatingWebhook   = "virt-api-mutator"
	ValidatingWebhook = "virt-api-validator"
)

// AnnotationHost is what virt-handler leaves on its node about the machine: JSON of host.Facts.
const AnnotationHost = "virtkit.io/host"

// AnnotationRestored is how an administrator confirms to a node that its cluster was restored without the guests that
// it runs; they are shut down then. Its value is what the node's event GuestsUnknown says.
const AnnotationRestored = "virtkit.io/restored"

// What virt-handler leaves on its node for the fence (package fencing).
const (
	// AnnotationHeartbeatTaken is the resource version of the Node with which the API server answered the heartbeat
	// before.
	AnnotationHeartbeatTaken = "virtkit.io/heartbeat-taken"
	// AnnotationHeartbeatPaused says that virt-handler was stopped in order: no heartbeats come, and launchers do not
	// count. Its value is the UIDs of their pods, with commas.
	AnnotationHeartbeatPaused = "virtkit.io/heartbeat-paused"
	// AnnotationFencingSet is the node's fencing.Set. Components of earlier versions read it under this key.
	AnnotationFencingSet = "virtkit.io/witnesses"
	// AnnotationHandlerAddress is where the other nodes' virt-handlers reach this one: an IP address, without the port.
	AnnotationHandlerAddress = "virtkit.io/handler-address"
)

// AnnotationProgress is how far a migration is, on its VirtualMachineInstanceMigration: JSON of progress.Progress.
const AnnotationProgress = "virtkit.io/migration-progress"

// AnnotationExpanding names, on a pod, the claims whose file systems its kubelet was last asked to make larger. The
// kubelet looks at a pod's claims when the pod changes, and else once in a minute or two.
const AnnotationExpanding = "virtkit.io/expanding-claims"

// AnnotationClaims is, on a migration's pod, a checksum of the claims for which it was made.
const AnnotationClaims = "virtkit.io/claims"

// ConditionSoftwareEmulation is the condition of a VMI that is True while its guest runs without hardware
// virtualization.
const ConditionSoftwareEmulation = "SoftwareEmulation"

// Ports, TCP.
const (
	// PortAPI serves the aggregated API and the webhooks (TLS).
	PortAPI = 8443
	// PortHandler serves streams and requests for a node's guests to virt-api (mutual TLS).
	PortHandler = 8186
	// PortMigration takes the streams of guests that move to the node from the virt-handlers of others
	// (mutual TLS).
	PortMigration = 8187
	// PortMetrics serves /metrics to Prometheus (TLS, a token); virt-api's is PortAPI, which is the same.
	PortMetrics = 8443
	// PortHealth serves /healthz and /readyz without TLS, for the kubelet, in every component.
	PortHealth = 8081
)

// A launcher pod, seen from inside its `compute` container. Short paths keep unix sockets under
// the kernel's 107 bytes when virt-handler reaches them below the kubelet's pod directory.
const (
	// ContainerCompute is the container that runs virt-launcher.
	ContainerCompute = "compute"
	// ContainerConsoleLog is the one whose log is the guest's serial console, as KubeVirt's.
	ContainerConsoleLog = "guest-console-log"

	// VolumeRun is the emptyDir at RunDir: sockets, logs, libvirt's state. virt-handler reaches it at
	// <kubelet pods>/<pod uid>/volumes/kubernetes.io~empty-dir/run.
	VolumeRun = "run"
	RunDir    = "/run/virtkit"
	// SocketLauncher is where the launcher's gRPC service listens, relative to RunDir. It is
	// there once the launcher is ready for requests.
	SocketLauncher = "launcher.sock"
	// SocketProbe is where the launcher answers the kubelet's probes, which are `virt-launcher probe` in its container.
	SocketProbe = "probe.sock"
	// SocketSerial and LogSerial are the first serial port's chardev and what the guest wrote to it.
	SocketSerial = "serial0.sock"
	LogSerial    = "serial0.log"
	// HeaderLogResume has the last bytes that a client has read of a log, in hexadecimal, to go on after them. It is a
	// header since addresses are written down on their way, by the API server's audit among others, and what a guest
	// shows is not theirs.
	HeaderLogResume = "Virtkit-Log-Resume"
	// OffsetsSuffix is that of the file beside a log that says how long the log was when.
	OffsetsSuffix = ".marks"
	// QEMULogDir has QEMU's own log, named after the domain.
	QEMULogDir = "cache/libvirt/qemu/log"
	// SocketMetrics is the port at which a guest asks for metrics.
	SocketMetrics = "metrics.sock"
	// SocketVNC is the VNC server.
	SocketVNC = "vnc.sock"
	// SocketUSB and SuffixUSB are around the number of each of the USBRedirections sockets to which clients redirect a
	// USB device, from 0: usb0.sock.
	SocketUSB, SuffixUSB = "usb", ".sock"
	// USBRedirections is how many there are; KubeVirt's.
	USBRedirections = 4
	// SocketLibvirt is libvirtd's, relative to RunDir.
	SocketLibvirt = "rt/libvirt/libvirt-sock"
	// Sockets of a migration, relative to RunDir. virt-handler listens on them in the launcher that the guest
	// leaves and passes on what arrives: to the other launcher's libvirtd (peer), and to its QEMU,
	// which listens on sockets of the same names (memory and disks).
	SocketMigrationPeer   = "migration-peer.sock"
	SocketMigrationMemory = "migration-memory.sock"
	SocketMigrationDisks  = "migration-disks.sock"
	// The files of those below are named as launchers of earlier versions know them.
	//
	// SocketMigrationHandoff leads to the other launcher itself, which listens at SocketMigrationHandoffIn.
	SocketMigrationHandoff   = "migration-handover.sock"
	SocketMigrationHandoffIn = "migration-arrival.sock"
	// SocketMigrationImages is virt-handler's for the launcher that the guest leaves to give images along, and
	// SocketMigrationImagesIn where the other launcher takes them.
	SocketMigrationImages   = "migration-seeds.sock"
	SocketMigrationImagesIn = "migration-seeds-in.sock"
	// CapabilityCacheDir is libvirt's cache of QEMU capabilities, relative to RunDir; virt-handler
	// fills it before Start: libvirt reads it when the first domain is made, not before.
	CapabilityCacheDir = "cache/libvirt/qemu/cache/capabilities"
	// DomainCapabilities is the name under which a probe of QEMU prints libvirt's domain capabilities.
	DomainCapabilities = "domain-capabilities.xml"

	// VolumeDisks is the emptyDir at DisksDir: overlays, empty disks, cloud-init images.
	VolumeDisks = "disks"
	DisksDir    = "/run/virtkit-disks"
	// ContainerDisksDir has one read-only image volume a container disk, at
	// <ContainerDisksDir>/<volume name>; the disk is its only file below disk/, or spec.path.
	ContainerDisksDir = "/var/run/kubevirt/container-disks"
	// KernelBootDir has the image of firmware.kernelBoot.
	KernelBootDir = "/var/run/kubevirt/kernel-boot"
	// ClaimsDir has one directory a filesystem PersistentVolumeClaim, <ClaimsDir>/<volume name>/disk.img.
	ClaimsDir = "/var/run/kubevirt-private/vmi-disks"
	// ResumeDir is the claim with the memory from which a guest is resumed. No volume can have such a name.
	ResumeDir = ClaimsDir + "/.resume"
	// VMStateDir is the claim of what outlives the guest beside its disks: EFI variables, the TPM's state
	// (pkg/vm/vmstate has its layout).
	VMStateDir = "/var/run/kubevirt-private/vm-state"
	// BlockDevicesDir has one device a block PersistentVolumeClaim: <BlockDevicesDir>/<volume name>.
	BlockDevicesDir = "/dev/virtkit-block"
	// FilesystemsDir has one directory a file system that the guest shares, <FilesystemsDir>/<name>, with the socket of
	// its virtiofsd; VolumeFilesystems is the emptyDir there. SharedDir is what is shared, in virtiofsd's container.
	FilesystemsDir    = "/run/virtkit-fs"
	VolumeFilesystems = "filesystems"
	SharedDir         = "/run/virtkit-shared"
	// HugepagesDir is the mount point of the huge pages of a guest whose memory is on them; libvirt finds it.
	HugepagesDir = "/dev/hugepages"
	// HotplugDir has one directory a filesystem claim that was plugged in while the guest runs, mounted by
	// virt-handler: <HotplugDir>/<volume name>/disk.img. It is in /dev, which virt-handler can write and the
	// launcher cannot. A block claim that was plugged in is in BlockDevicesDir as all others.
	HotplugDir = "/dev/virtkit-volumes"
	// SecretsDir has one directory a volume of sysprep, a ConfigMap, Secret, service account or the downward API,
	// <SecretsDir>/<volume name>, and one a cloud-init secretRef: <SecretsDir>/<volume name>/{userdata,userData} for
	// user data and <SecretsDir>/<volume name>-networkdata/{networkdata,networkData} for network data.
	SecretsDir = "/var/run/kubevirt-private/secret"

	// CredentialsDir has one directory a Secret that spec.accessCredentials names, <CredentialsDir>/<secret name>;
	// the kubelet keeps it current.
	CredentialsDir = "/var/run/kubevirt-private/access-credentials"

	// User and Group are the IDs that everything in a launcher pod runs as.
	User  = 107
	Group = 107

	// ChecksumKernel and ChecksumInitrd are the names under which the launcher reports the checksums of the files of a
	// guest's kernel boot; those of container disks have their volumes' names, which never begin with a dot.
	ChecksumKernel = ".kernel"
	ChecksumInitrd = ".initrd"

	// ExitGuestFailed is the launcher's exit code when the guest crashed or could not be started
	// for good; a guest that shut down gives 0. It decides the pod's phase and so the VMI's.
	ExitGuestFailed = 1
	// ReasonTerminated is a launcher's last reason for a guest that was ended because its pod was
	// (SIGTERM: deleted, evicted, its node shutting down), and not by itself. The pod of a deleted VMI is
	// deleted, too; for any other VMI it is a failure, so that its run strategy starts the guest elsewhere.
	ReasonTerminated = "terminated"
	// ReasonNeverRan is that of a launcher in which no guest has run, not even one that had arrived by a migration: its
	// source may let it go on.
	ReasonNeverRan = "not started"
	// ReasonHandoff is a launcher's reason for a guest that stands still because another launcher was asked to start it
	// and has not said yet that it runs.
	ReasonHandoff = "handed over"
	// ReasonMemoryMisfit is the reason of condition Failure of a VM whose guest must not go on from its memory in a
	// snapshot.
	ReasonMemoryMisfit = "MemoryDoesNotFit"
	// ReasonGateClosed is the reason of the API's status for an object that is refused while a feature gate is closed.
	// KubeVirt's status has the same code, BadRequest's, and no reason.
	ReasonGateClosed = "FeatureGateClosed"
	// ReasonPausedToMove is the reason of condition Paused of a VMI whose guest does so.
	ReasonPausedToMove = "PausedToMove"
)

// An attachment pod holds one hotplugged claim on the node of its VMI's launcher pod, which owns it.
const (
	// HotplugDisk is the value of LabelComponent of attachment pods, as KubeVirt's.
	HotplugDisk = "hotplug-disk"
	// HotplugPodPrefix begins their names.
	HotplugPodPrefix = "hp-volume-"
	// AttachmentDir has the directory of a filesystem claim in an attachment pod, by the volume's name; a
	// device is in BlockDevicesDir.
	AttachmentDir = "/volumes"
)

// An upload pod takes the upload of an image to a claim; it is `virt-launcher upload`, with a run volume as a
// launcher's.
const (
	// VirtUpload is the value of LabelComponent of upload pods, and what their log calls them.
	VirtUpload = "virt-upload"
	// UploadPodPrefix begins their names.
	UploadPodPrefix = "virt-upload-"
	// SocketUpload is where an upload's server listens, relative to RunDir.
	SocketUpload = "upload.sock"
	// UploadDir has the claim's file system; a device is UploadDevice.
	UploadDir    = "/upload"
	UploadDevice = "/dev/virtkit-upload"
	// UploadImageDir has the container image whose disk is taken.
	UploadImageDir = "/upload-image"
	// UploadScratchDir has an image that is to be converted to a device.
	UploadScratchDir = "/run/virtkit-scratch"
)

// AnnotationGuestfsWait, on the pod of a session of `virtctl guestfs`, is how long its client waits for the pod to run:
// a duration of Go's, from the pod's creation on.
const AnnotationGuestfsWait = "guestfs.virtkit.io/wait"

// VirtGuestfs is the value of LabelComponent of the pods that `virtctl guestfs` makes, with the rights of who runs it.
const VirtGuestfs = "virt-guestfs"

// An export pod serves the claims of a VirtualMachineExport; it is `virt-exporter serve`. Paths and header are
// KubeVirt's.
const (
	// VirtExport is the value of LabelComponent of export pods and their Services, and what their log calls them.
	VirtExport = "virt-exporter"
	// ExportPrefix begins the names of export pods and of the Services that lead to them, as KubeVirt's.
	ExportPrefix = "virt-export-"
	// ExportPort is where the server listens (TLS), ExportServicePort the port of the Service.
	ExportPort, ExportServicePort = 8443, 443
	// ExportDir has the file systems of claims, ExportDevicesDir the devices, each by its number.
	ExportDir, ExportDevicesDir = "/export-volumes", "/dev/export-volumes"
	// ExportCertDir has tls.crt and tls.key, ExportTokenDir the token, ExportManifestDir the manifests.
	ExportCertDir, ExportTokenDir, ExportManifestDir = "/cert", "/token", "/manifest_data"
	// SocketExport is where the server of an export with devices listens, relative to RunDir, for virt-handler to know
	// it by and give it the devices: the kubelet makes them root's.
	SocketExport = "export.sock"
	// ExportTokenKey is the key of a token in its Secret.
	ExportTokenKey = "token"

	// HeaderExportToken carries the token in a request; so may a parameter of that name.
	HeaderExportToken = "x-kubevirt-export-token"
	// HeaderDiskSize is the size of the disk in bytes, of which an answer may be a compressed part. Its presence says
	// that the server takes the parameter ExportOffset, too.
	HeaderDiskSize = "Virtkit-Disk-Size"
	// HeaderNotIncluded is in the answer with an OVA: what of the VM is not in it, a header for each.
	HeaderNotIncluded = "Virtkit-Not-Included"
	// ExportOffset is the parameter that asks for a compressed disk from that byte of the disk on.
	ExportOffset = "offset"

	// ExportVolumes begins the path of a volume; what follows its name is one of the five.
	ExportVolumes = "/volumes/"
	ExportRaw     = "disk.img"
	ExportGzip    = "disk.img.gz"
	ExportQCOW2   = "disk.qcow2"
	ExportTree    = "dir/"
	ExportArchive = "disk.tar.gz"
	// ExportReady answers the kubelet, without a token.
	ExportReady = "/exportready"
	// ExportManifests is the path of the manifests, ExportSecret that of the Secret with which CDI imports.
	ExportManifests = "/internal/manifests/all"
	ExportSecret    = "/internal/manifests/secret"
	// ExportOVA is the path of the VM with its disks as one archive.
	ExportOVA = "/internal/vm.ova"
	// ExportInternal begins the paths of both, and ExportExternal the same for clients outside of the cluster.
	ExportInternal, ExportExternal = "/internal/", "/external/"
	// HeaderExportAddress is what virt-exportproxy says of where an export is reached from outside: a URL that ends
	// with its name. HeaderExportAuthority is the certificate that is shown there, PEM in base64.
	HeaderExportAddress   = "Virtkit-Export-Address"
	HeaderExportAuthority = "Virtkit-Export-Authority"
	// ExportProxyCertDir has virt-exportproxy's tls.crt and tls.key, ExportProxyPort is where it listens (TLS).
	ExportProxyCertDir = "/etc/virtkit/certificates"
	ExportProxyPort    = 8443
	// ExportHeaderSecret begins the name of that Secret, the export's name ends it.
	ExportHeaderSecret = "header-secret-"
	// ExportAuthority begins the name of the ConfigMap by which CDI knows the export's certificate.
	ExportAuthority = "export-ca-cm-"
	// ExportManifestsJSON and ExportManifestsYAML are files below ExportManifestDir.
	ExportManifestsJSON, ExportManifestsYAML = "all.json", "all.yaml"
)

// ProvisioningPod is the value of LabelComponent of the pod that a VMI has before its own where CDI fills a claim
// only once a pod is to use it.
const ProvisioningPod = "virt-provisioning"

// DefaultBalloonPeriod is how often a guest reports its memory statistics where the configuration does not say,
// seconds; KubeVirt's.
const DefaultBalloonPeriod = 10

// Labels of nodes about the time stamp counters of guests; KubeVirt's.
const (
	// LabelTSCFrequency and LabelTSCScalable are virt-handler's: how often a guest's time stamp counter ticks a second
	// on the node, and whether KVM can make it tick otherwise.
	LabelTSCFrequency = "cpu-timer.node.kubevirt.io/tsc-frequency"
	LabelTSCScalable  = "cpu-timer.node.kubevirt.io/tsc-scalable"
	// LabelTSCScheduling begins virt-controller's label for a frequency that a guest can have on the node.
	LabelTSCScheduling = "scheduling.node.kubevirt.io/tsc-frequency-"
)

// Resources that virt-handler's device plugin offers.
const (
	// ResourceKVM is offered on nodes with hardware KVM only.
	ResourceKVM = "devices.kubevirt.io/kvm"
	// ResourceVSOCK is offered on nodes with DeviceVSOCK in /dev, while the feature gate VSOCK is open.
	ResourceVSOCK = "devices.kubevirt.io/vhost-vsock"
	DeviceVSOCK   = "vhost-vsock"
	// ResourceSEV is offered on nodes with DeviceSEV in /dev, while the feature gate WorkloadEncryptionSEV is open.
	ResourceSEV = "devices.kubevirt.io/sev"
	DeviceSEV   = "sev"
)

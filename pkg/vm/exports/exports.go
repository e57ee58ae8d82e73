// Package exports has the rules of a VirtualMachineExport that its parts agree on: the names of its objects, the
// formats and addresses of a volume, and when an export is over. virt-controller, virt-api and virtctl ask it. Names,
// paths and reasons are KubeVirt's.
package exports

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/export/v1beta1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"

	"github.com/virtkit/virtkit/pkg/names"
)

// Kind, Resource and Group name exports; Path is the API server's path of them.
const (
	Kind     = "VirtualMachineExport"
	Resource = "virtualmachineexports"
	Path     = "/apis/export.kubevirt.io/v1beta1"
)

// The kinds of sources.
const (
	KindVM       = "VirtualMachine"
	KindSnapshot = "VirtualMachineSnapshot"
	KindClaim    = "PersistentVolumeClaim"
)

// Reasons of the condition Ready.
const (
	ReasonInitializing = "Initializing"
	ReasonInUse        = "InUse"
	ReasonPodPending   = "PodPending"
	ReasonPodReady     = "PodReady"
	ReasonPodCompleted = "PodCompleted"
	ReasonUnknown      = "Unknown"
	ReasonVMNotFound   = "VMNotFound"
	ReasonNoVolumes    = "VMNoVolumes"
	ReasonNotPopulated = "VolumesNotPopulated"

	ReasonSnapshotNotFound = "VMSnapshotNotFound"
	// ReasonRefused is ours: the API server refuses what the export needs, for a quota say.
	ReasonRefused = "Refused"
)

// Reasons of the conditions PVCReady and VolumesCreated.
const (
	ReasonClaimNotFound = "PVCNotFound"
	ReasonClaimBound    = "PVCBound"
	ReasonClaimPending  = "PVCPending"

	ReasonAllClaimsReady      = "AllPVCsReady"
	ReasonNotAllClaimsReady   = "NotAllPVCsReady"
	ReasonNotAllClaimsCreated = "NotAllPVCsCreated"
	ReasonNoVolumeSnapshot    = "NoVolumeSnapshots"
)

// FormatQCOW2 is a format that KubeVirt does not have: a qcow2 image, compressed and without holes.
const FormatQCOW2 v1beta1.ExportVolumeFormat = "qcow2"

// FormatOVA and ManifestOVA are the VM with its disks as one archive for other hypervisors, which KubeVirt does not
// have either. Its address is among those of the manifests, for it is no volume's.
const (
	FormatOVA   v1beta1.ExportVolumeFormat = "ova"
	ManifestOVA v1beta1.ExportManifestType = "ova"
)

// AnnotationContentType is CDI's annotation of a claim; ContentDisk and the empty value are a disk.
const (
	AnnotationContentType = "cdi.kubevirt.io/storage.contentType"
	ContentDisk           = "kubevirt"
)

// Content is the kind of a volume's content.
type Content string

// The contents: a file system with a disk in disk.img, a block device, and a file system of which all is exported.
const (
	Disk   Content = "disk"
	Device Content = "device"
	Files  Content = "files"
)

// Volume is one volume of an export.
type Volume struct {
	// Name is the export's name for it: the name of the claim, or of a snapshot's claim.
	Name    string
	Claim   string
	Content Content
}

// file is the last part of an address, by format.
type file struct {
	format v1beta1.ExportVolumeFormat
	file   string
}

var disk = []file{
	{v1beta1.KubeVirtRaw, names.ExportRaw}, {v1beta1.KubeVirtGz, names.ExportGzip}, {FormatQCOW2, names.ExportQCOW2},
}

// files are in the order in which links list them.
var files = map[Content][]file{
	Disk:   disk,
	Device: disk,
	Files:  {{v1beta1.Dir, names.ExportTree}, {v1beta1.ArchiveGz, names.ExportArchive}},
}

// Links returns the addresses of an export at a host in the cluster, with the certificate that the host shows. An
// export of a claim has no manifests.
func Links(host, certificate string, volumes []Volume, manifests bool) *v1beta1.VirtualMachineExportLink {
	return links("https://"+host, names.ExportInternal, certificate, volumes, manifests)
}

// ExternalLinks does what Links does for the address of an export outside of the cluster (External).
func ExternalLinks(
	address, certificate string, volumes []Volume, manifests bool,
) *v1beta1.VirtualMachineExportLink {
	return links(address, names.ExportExternal, certificate, volumes, manifests)
}

func links(
	address, manifestsBelow, certificate string, volumes []Volume, manifests bool,
) *v1beta1.VirtualMachineExportLink {
	link := &v1beta1.VirtualMachineExportLink{Cert: certificate}
	for _, volume := range volumes {
		out := v1beta1.VirtualMachineExportVolume{Name: volume.Name}
		for _, f := range files[volume.Content] {
			out.Formats = append(out.Formats, v1beta1.VirtualMachineExportVolumeFormat{
				Format: f.format, Url: address + VolumePath(volume.Name) + f.file,
			})
		}
		link.Volumes = append(link.Volumes, out)
	}
	if manifests {
		for _, m := range []v1beta1.VirtualMachineExportManifest{
			{Type: v1beta1.AllManifests, Url: names.ExportManifests},
			{Type: v1beta1.AuthHeader, Url: names.ExportSecret},
			{Type: ManifestOVA, Url: names.ExportOVA},
		} {
			m.Url = address + manifestsBelow + strings.TrimPrefix(m.Url, names.ExportInternal)
			link.Manifests = append(link.Manifests, m)
		}
	}
	return link
}

// VolumePath returns the path of a volume, with a slash at its end.
func VolumePath(volume string) string { return names.ExportVolumes + volume + "/" }

// Name returns the name of an export's pod and Service, a DNS label: names of exports may be longer, and may have dots.
func Name(export string) string {
	label := strings.ReplaceAll(export, ".", "-")
	if label != export {
		// Two exports that differ in a dot only must not get one Service.
		sum := names.Shorten(strings.Repeat("x", names.MaxLabel)+export, names.MaxLabel)
		label = names.Shorten(label, names.MaxLabel-len(names.ExportPrefix)-9) + sum[len(sum)-9:]
	}
	return names.Shorten(names.ExportPrefix+label, names.MaxLabel)
}

// Host returns the name of an export's Service in the cluster.
func Host(namespace, export string) string { return Name(export) + "." + namespace + ".svc" }

// TokenSecret returns the name of the Secret of an export that names none. Its UID is in the name: the Secret of a
// deleted export of this name goes with that one.
func TokenSecret(export metav1.Object) string {
	const room = names.MaxLabel - len("export-token-") - 9
	uid, _, _ := strings.Cut(string(export.GetUID()), "-")
	return "export-token-" + names.Shorten(export.GetName(), room) + "-" + uid[:min(len(uid), 8)]
}

// Expiration returns when an export is deleted.
func Expiration(export *v1beta1.VirtualMachineExport) time.Time {
	lifetime := v1beta1.DefaultDurationTTL
	if export.Spec.TTLDuration != nil {
		lifetime = export.Spec.TTLDuration.Duration
	}
	return export.CreationTimestamp.Add(lifetime)
}

// SourceKind returns the kind of a source, or "" for an unknown one.
func SourceKind(source *corev1.TypedLocalObjectReference) string {
	group := ""
	if source.APIGroup != nil {
		group = *source.APIGroup
	}
	groups := map[string]string{
		KindVM: v1.GroupVersion.Group, KindSnapshot: snapshotv1beta1.SchemeGroupVersion.Group, KindClaim: "",
	}
	if want, ok := groups[source.Kind]; !ok || want != group {
		return ""
	}
	return source.Kind
}

package exports

import (
	"net/url"
	"regexp"
	"slices"
	"strings"

	"kubevirt.io/api/export/v1beta1"

	"github.com/virtkit/virtkit/pkg/names"
)

// externalRoot begins the paths that virt-exportproxy serves, of any version. The paths are KubeVirt's.
const externalRoot = "/api/export.kubevirt.io/"

// versions are those of a path that virt-exportproxy takes.
var versions = []string{v1beta1.SchemeGroupVersion.Version, "v1alpha1", "v1"}

// MaxCertificate bounds the certificates of a link from outside of the cluster, PEM, bytes: in base64 they are in a
// header of each request for manifests.
const MaxCertificate = 40 << 10

// External returns the address of an export at a host outside of the cluster that leads to virt-exportproxy.
func External(host, namespace, name string) string {
	return "https://" + host + externalRoot + versions[0] + "/namespaces/" + namespace + "/" + Resource + "/" + name
}

// AddressOf returns the address outside of the cluster that a link of an export has, "" for none.
func AddressOf(link *v1beta1.VirtualMachineExportLink, namespace, name string) string {
	if link == nil || len(link.Volumes) == 0 || len(link.Volumes[0].Formats) == 0 {
		return ""
	}
	at, err := url.Parse(link.Volumes[0].Formats[0].Url)
	if err != nil || at.Host == "" {
		return ""
	}
	return External(at.Host, namespace, name)
}

// Requested is what the path of a request to virt-exportproxy asks for.
type Requested struct {
	Namespace, Name string
	// Path is the path at the export's own server.
	Path string
}

var (
	namespaceName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	exportName    = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
)

// maxName bounds the name of an export, which is an object's.
const maxName = 253

// Parse reads the path of a request. Only volumes and manifests are reached from outside.
func Parse(path string) (Requested, bool) {
	rest, ok := strings.CutPrefix(path, externalRoot)
	parts := strings.SplitN(rest, "/", 6)
	if !ok || len(parts) != 6 || !slices.Contains(versions, parts[0]) || parts[1] != "namespaces" ||
		parts[3] != Resource {
		return Requested{}, false
	}
	asked := Requested{Namespace: parts[2], Name: parts[4], Path: "/" + parts[5]}
	if len(asked.Namespace) > names.MaxLabel || len(asked.Name) > maxName ||
		!namespaceName.MatchString(asked.Namespace) || !exportName.MatchString(asked.Name) {
		return Requested{}, false
	}
	return asked, strings.HasPrefix(asked.Path, names.ExportVolumes) ||
		strings.HasPrefix(asked.Path, names.ExportExternal)
}

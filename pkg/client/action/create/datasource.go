package create

import (
	"strings"

	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// DataSource is what CDI fills a DataVolume with. Which fields count depends on Type; their names are those of
// KubeVirt's --volume-import.
type DataSource struct {
	// Type is one of ImportTypes.
	Type string
	// Size is the volume's, as a quantity; pvc, snapshot and ds have one of their own when it is empty.
	Size string
	// Source is NAMESPACE/NAME of a pvc or snapshot, [NAMESPACE/]NAME of a ds.
	Source string
	URL    string
	// SecretRef and CertConfigMap name the credentials and certificates for URL.
	SecretRef, CertConfigMap         string
	ExtraHeaders, SecretExtraHeaders []string
	// DiskID is an imageio's; ImageStream and PullMethod are a registry's; the rest is a vddk's.
	DiskID, ImageStream, PullMethod             string
	BackingFile, InitImageURL, ThumbPrint, UUID string
}

// importParameters are the fields that each type takes, besides type, name, size and bootorder.
var importParameters = map[string][]string{
	"blank":    {},
	"gcs":      {"secretref", "url"},
	"http":     {"certconfigmap", "extraheaders", "secretextraheaders", "secretref", "url"},
	"imageio":  {"certconfigmap", "diskid", "secretref", "url"},
	"pvc":      {"src"},
	"registry": {"certconfigmap", "imagestream", "pullmethod", "secretref", "url"},
	"s3":       {"certconfigmap", "secretref", "url"},
	"vddk":     {"backingfile", "initimageurl", "secretref", "thumbprint", "url", "uuid"},
	"snapshot": {"src"},
	"ds":       {"src"},
}

// ImportTypes returns the types of a DataSource, and ImportParameters the fields that one takes.
func ImportTypes() []string {
	return []string{"blank", "gcs", "http", "imageio", "pvc", "registry", "s3", "vddk", "snapshot", "ds"}
}

// ImportParameters returns the fields of a type, besides type, name, size and bootorder; nil for a type that is none.
func ImportParameters(of string) []string { return importParameters[of] }

// Set sets a field by its name on the command line; false when there is none of that name.
func (d *DataSource) Set(name, value string) bool {
	// Several headers are separated by semicolons, since commas separate the parameters.
	switch name {
	case "extraheaders":
		d.ExtraHeaders = strings.Split(value, ";")
		return true
	case "secretextraheaders":
		d.SecretExtraHeaders = strings.Split(value, ";")
		return true
	}
	field := map[string]*string{
		"size": &d.Size, "src": &d.Source, "url": &d.URL, "secretref": &d.SecretRef, "certconfigmap": &d.CertConfigMap,
		"diskid": &d.DiskID, "imagestream": &d.ImageStream, "pullmethod": &d.PullMethod, "backingfile": &d.BackingFile,
		"initimageurl": &d.InitImageURL, "thumbprint": &d.ThumbPrint, "uuid": &d.UUID,
	}[name]
	if field == nil {
		return false
	}
	*field = value
	return true
}

// sized reports whether the source has a size of its own.
func (d DataSource) sized() bool { return d.Type == "pvc" || d.Type == "snapshot" || d.Type == "ds" }

func (d DataSource) require(field string, needed map[string]string, order ...string) error {
	for _, name := range order {
		if needed[name] == "" {
			return invalid(field, "%s is missing; type %s needs it", name, d.Type)
		}
	}
	return nil
}

// fill writes the source into a DataVolume's spec.
func (d DataSource) fill(field string, spec *cdiv1.DataVolumeSpec) error {
	values := map[string]string{
		"url": d.URL, "src": d.Source, "diskid": d.DiskID, "uuid": d.UUID, "thumbprint": d.ThumbPrint,
		"secretref": d.SecretRef, "backingfile": d.BackingFile,
	}
	source := &cdiv1.DataVolumeSource{}
	spec.Source = source
	switch d.Type {
	case "blank":
		source.Blank = &cdiv1.DataVolumeBlankImage{}
		return nil
	case "gcs":
		source.GCS = &cdiv1.DataVolumeSourceGCS{URL: d.URL, SecretRef: d.SecretRef}
		return d.require(field, values, "url")
	case "http":
		source.HTTP = &cdiv1.DataVolumeSourceHTTP{
			URL: d.URL, SecretRef: d.SecretRef, CertConfigMap: d.CertConfigMap,
			ExtraHeaders: d.ExtraHeaders, SecretExtraHeaders: d.SecretExtraHeaders,
		}
		return d.require(field, values, "url")
	case "imageio":
		source.Imageio = &cdiv1.DataVolumeSourceImageIO{
			URL: d.URL, DiskID: d.DiskID, SecretRef: d.SecretRef,
			CertConfigMap: d.CertConfigMap,
		}
		return d.require(field, values, "url", "diskid")
	case "s3":
		source.S3 = &cdiv1.DataVolumeSourceS3{URL: d.URL, SecretRef: d.SecretRef, CertConfigMap: d.CertConfigMap}
		return d.require(field, values, "url")
	case "vddk":
		source.VDDK = &cdiv1.DataVolumeSourceVDDK{
			URL: d.URL, UUID: d.UUID, BackingFile: d.BackingFile, Thumbprint: d.ThumbPrint, SecretRef: d.SecretRef,
			InitImageURL: d.InitImageURL,
		}
		return d.require(field, values, "url", "uuid", "thumbprint", "secretref", "backingfile")
	case "registry":
		return d.registry(field, source)
	case "pvc", "snapshot":
		if err := d.require(field, values, "src"); err != nil {
			return err
		}
		namespace, name, both := cutLast(d.Source)
		if !both || namespace == "" || name == "" || strings.Contains(namespace, "/") {
			return invalid(field, "src %q is not NAMESPACE/NAME, as type %s needs it", d.Source, d.Type)
		}
		if d.Type == "snapshot" {
			source.Snapshot = &cdiv1.DataVolumeSourceSnapshot{Namespace: namespace, Name: name}
			return nil
		}
		source.PVC = &cdiv1.DataVolumeSourcePVC{Namespace: namespace, Name: name}
		return nil
	case "ds":
		spec.Source = nil
		if err := d.require(field, values, "src"); err != nil {
			return err
		}
		namespace, name, both := cutLast(d.Source)
		if name == "" || both && (namespace == "" || strings.Contains(namespace, "/")) {
			return invalid(field, "src %q is not [NAMESPACE/]NAME", d.Source)
		}
		spec.SourceRef = &cdiv1.DataVolumeSourceRef{Kind: cdiv1.DataVolumeDataSource, Name: name}
		if both {
			spec.SourceRef.Namespace = &namespace
		}
		return nil
	}
	return invalid(field, "type %q is not one of %s", d.Type, strings.Join(ImportTypes(), ", "))
}

func (d DataSource) registry(field string, source *cdiv1.DataVolumeSource) error {
	if (d.URL == "") == (d.ImageStream == "") {
		return invalid(field, "exactly one of url and imagestream is needed by type registry")
	}
	switch d.PullMethod {
	case "", string(cdiv1.RegistryPullPod), string(cdiv1.RegistryPullNode):
	default:
		return invalid(field, "pullmethod %q is not one of pod, node", d.PullMethod)
	}
	source.Registry = &cdiv1.DataVolumeSourceRegistry{
		URL: optional(d.URL), ImageStream: optional(d.ImageStream), SecretRef: optional(d.SecretRef),
		CertConfigMap: optional(d.CertConfigMap),
		PullMethod:    (*cdiv1.RegistryPullMethod)(optional(d.PullMethod)),
	}
	return nil
}

func optional(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

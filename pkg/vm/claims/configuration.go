package claims

import v1 "kubevirt.io/api/core/v1"

// Configuration reports whether a volume only carries data that Kubernetes has anyway, as an image that is made for
// the guest: cloud-init's, sysprep's, and those of ConfigMaps, Secrets, service accounts and the downward API. Nobody
// boots from one, and none outlives its VMI.
func Configuration(v *v1.Volume) bool {
	return v.CloudInitNoCloud != nil || v.CloudInitConfigDrive != nil || v.Sysprep != nil ||
		v.ConfigMap != nil || v.Secret != nil || v.ServiceAccount != nil || v.DownwardAPI != nil
}

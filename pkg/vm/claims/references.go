package claims

import (
	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
)

// Reference is an object that a volume names, in the namespace of its VM.
type Reference struct {
	// Kind is the object's kind, such as Secret.
	Kind, Name string
	// Optional says that a guest starts without the object.
	Optional bool
}

// References returns the objects that a volume names, the one that holds its data first. Of a DataVolume it is the
// DataVolume; its claim has the same name.
func References(volume *v1.Volume) []Reference {
	var out []Reference
	add := func(kind, name string, optional bool) {
		if name != "" {
			out = append(out, Reference{kind, name, optional})
		}
	}
	secret := func(ref *corev1.LocalObjectReference) {
		if ref != nil {
			add("Secret", ref.Name, false)
		}
	}
	given := func(optional *bool) bool { return optional != nil && *optional }
	switch source := volume.VolumeSource; {
	case source.DataVolume != nil:
		add("DataVolume", source.DataVolume.Name, false)
	case source.ConfigMap != nil:
		add("ConfigMap", source.ConfigMap.Name, given(source.ConfigMap.Optional))
	case source.Secret != nil:
		add("Secret", source.Secret.SecretName, given(source.Secret.Optional))
	case source.ServiceAccount != nil:
		add("ServiceAccount", source.ServiceAccount.ServiceAccountName, false)
	case source.ContainerDisk != nil:
		// The kubelet pulls without a secret that is not there.
		add("Secret", source.ContainerDisk.ImagePullSecret, true)
	case source.Sysprep != nil:
		secret(source.Sysprep.Secret)
		if source.Sysprep.ConfigMap != nil {
			add("ConfigMap", source.Sysprep.ConfigMap.Name, false)
		}
	case source.CloudInitNoCloud != nil:
		secret(source.CloudInitNoCloud.UserDataSecretRef)
		secret(source.CloudInitNoCloud.NetworkDataSecretRef)
	case source.CloudInitConfigDrive != nil:
		secret(source.CloudInitConfigDrive.UserDataSecretRef)
		secret(source.CloudInitConfigDrive.NetworkDataSecretRef)
	default:
		if claim := Of(volume); claim != nil {
			add("PersistentVolumeClaim", claim.ClaimName, false)
		}
	}
	return out
}

package vmicontroller

import (
	"path"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

// credentials mounts the Secrets of spec.accessCredentials, each once. The kubelet keeps what is mounted
// current, and so the launcher sees new keys and passwords without anybody else having read them.
func (p *podVolumes) credentials(vmi *v1.VirtualMachineInstance) {
	for i, secret := range credentialSecrets(vmi) {
		p.mount("access-credentials-"+strconv.Itoa(i), path.Join(names.CredentialsDir, secret), true,
			corev1.VolumeSource{
				Secret: &corev1.SecretVolumeSource{SecretName: secret},
			})
	}
}

func credentialSecrets(vmi *v1.VirtualMachineInstance) []string {
	var out []string
	for i := range vmi.Spec.AccessCredentials {
		c := &vmi.Spec.AccessCredentials[i]
		var source *v1.AccessCredentialSecretSource
		switch {
		case c.SSHPublicKey != nil:
			source = c.SSHPublicKey.Source.Secret
		case c.UserPassword != nil:
			source = c.UserPassword.Source.Secret
		}
		if source != nil && !slices.Contains(out, source.SecretName) {
			out = append(out, source.SecretName)
		}
	}
	return out
}

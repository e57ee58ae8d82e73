package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	v1 "kubevirt.io/api/core/v1"
)

// What is taken of the Secrets of spec.accessCredentials: public keys in all, and the bytes of each.
const (
	maxPublicKeys = 1024
	maxPublicKey  = 16 << 10
)

// KeySecrets returns the Secrets whose public keys cloud-init is to authorize as volume says, in order, once each:
// those of propagation method noCloud with cloudInitNoCloud, of configDrive with cloudInitConfigDrive.
func KeySecrets(spec *v1.VirtualMachineInstanceSpec, volume *v1.Volume) []string {
	var out []string
	for i := range spec.AccessCredentials {
		key := spec.AccessCredentials[i].SSHPublicKey
		if key == nil || key.Source.Secret == nil {
			continue
		}
		way := key.PropagationMethod
		if (volume.CloudInitNoCloud == nil || way.NoCloud == nil) &&
			(volume.CloudInitConfigDrive == nil || way.ConfigDrive == nil) {
			continue
		}
		if name := key.Source.Secret.SecretName; !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

func lookKeys(vmi *v1.VirtualMachineInstance, volume *v1.Volume, dirs Dirs) ([]string, error) {
	var out []string
	for _, secret := range KeySecrets(&vmi.Spec, volume) {
		values, err := ReadSecret(path.Join(dirs.Credentials, secret))
		if err != nil {
			return nil, fmt.Errorf("accessCredentials: secret %s: %w", secret, err)
		}
		keys, err := PublicKeys(values)
		if err != nil {
			return nil, invalidf("accessCredentials: secret %s: %w", secret, err)
		}
		for _, key := range keys {
			if !slices.Contains(out, key) {
				out = append(out, key)
			}
		}
	}
	return out, nil
}

// ReadSecret reads a mounted Secret, by key. A value is cut at Kubernetes' limit for a whole Secret, 1 MiB.
func ReadSecret(dir string) (map[string][]byte, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "..") {
			continue // the kubelet's own
		}
		data, err := readBounded(path.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed while we look
		}
		if err != nil {
			return nil, err
		}
		out[e.Name()] = data
	}
	return out, nil
}

// PublicKeys returns the lines of authorized_keys in a Secret's values, in the order of its keys, once each, without
// comments.
func PublicKeys(secret map[string][]byte) ([]string, error) {
	names := make([]string, 0, len(secret))
	for name := range secret {
		names = append(names, name)
	}
	slices.Sort(names)
	var out []string
	for _, name := range names {
		for line := range strings.Lines(string(secret[name])) {
			line = strings.TrimSpace(line)
			if line == "" || strings.HasPrefix(line, "#") || slices.Contains(out, line) {
				continue
			}
			if len(line) > maxPublicKey {
				return nil, fmt.Errorf("key %s has a line of %d bytes; a public key has %d at most", name, len(line),
					maxPublicKey)
			}
			if len(out) == maxPublicKeys {
				return nil, fmt.Errorf("it has more than %d public keys", maxPublicKeys)
			}
			out = append(out, line)
		}
	}
	return out, nil
}

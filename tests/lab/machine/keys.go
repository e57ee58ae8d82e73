package machine

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"os"
	"path/filepath"

	"golang.org/x/crypto/ssh"
)

// The names of the keys: in the machine's lab directory as images/lab's sshd has them, and in its directory here.
const (
	hostKey, authorized = "host_key", "authorized_keys"
	ourKey, knownHost   = "key", "known_host"
)

// makeKeys makes the keys of a run: the machine's, by which we know it, and ours, by which it knows us. Each side gets
// its own and the other's public one.
func makeKeys(inside, dir string) error {
	if err := os.MkdirAll(inside, 0o755); err != nil {
		return err
	}
	for _, k := range []struct{ private, public string }{
		{filepath.Join(inside, hostKey), filepath.Join(dir, knownHost)},
		{filepath.Join(dir, ourKey), filepath.Join(inside, authorized)},
	} {
		public, private, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return err
		}
		block, err := ssh.MarshalPrivateKey(private, "lab")
		if err != nil {
			return err
		}
		known, err := ssh.NewPublicKey(public)
		if err != nil {
			return err
		}
		if err := os.WriteFile(k.private, pem.EncodeToMemory(block), 0o600); err != nil {
			return err
		}
		if err := os.WriteFile(k.public, ssh.MarshalAuthorizedKey(known), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// sshConfig is how to reach the machine of a directory.
func sshConfig(dir string) (*ssh.ClientConfig, error) {
	private, err := os.ReadFile(filepath.Join(dir, ourKey))
	if err != nil {
		return nil, err
	}
	signer, err := ssh.ParsePrivateKey(private)
	if err != nil {
		return nil, err
	}
	public, err := os.ReadFile(filepath.Join(dir, knownHost))
	if err != nil {
		return nil, err
	}
	known, _, _, _, err := ssh.ParseAuthorizedKey(public)
	if err != nil {
		return nil, err
	}
	return &ssh.ClientConfig{
		User: "root", Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, HostKeyCallback: ssh.FixedHostKey(known),
	}, nil
}

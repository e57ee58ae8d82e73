package script

import (
	"crypto/ed25519"
	"encoding/pem"
	"os"
	"path/filepath"

	"golang.org/x/crypto/ssh"

	"github.com/virtkit/virtkit/tests/sshd"
)

// addSSH gives the guests an ssh server, with sftp below guest in the script's directory; the private key that may log
// in is the file key there.
func (c *cluster) addSSH(dir string) error {
	_, host, err := sshd.NewKey()
	if err != nil {
		return err
	}
	key, signer, err := sshd.NewKey()
	if err != nil {
		return err
	}
	if err := writeKey(filepath.Join(dir, "key"), key); err != nil {
		return err
	}
	c.sshd = &sshd.Server{HostKey: host, Keys: []ssh.PublicKey{signer.PublicKey()}, Dir: filepath.Join(dir, "guest")}
	return os.MkdirAll(c.sshd.Dir, 0o700)
}

// newKeyFile writes a key that nobody knows.
func newKeyFile(path string) error {
	key, _, err := sshd.NewKey()
	if err != nil {
		return err
	}
	return writeKey(path, key)
}

func writeKey(path string, key ed25519.PrivateKey) error {
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		return err
	}
	return os.WriteFile(path, pem.EncodeToMemory(block), 0o600)
}

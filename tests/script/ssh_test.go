package script

import (
	"encoding/pem"
	"os"
	"path/filepath"

	"golang.org/x/crypto/ssh"

	"github.com/virtkit/virtkit/tests/sshd"
)

// addSSH gives the guests an ssh server, with sftp below guest in the script's directory; the private key that may log in
// is the file key there.
func (c *cluster) addSSH(dir string) error {
	_, host, err := sshd.NewKey()
	if err != nil {
		return err
	}
	key, signer, err := sshd.NewKey()
	if err != nil {
		return err
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "key"), pem.EncodeToMemory(block), 0o600); err != nil {
		return err
	}
	c.sshd = &sshd.Server{HostKey: host, Keys: []ssh.PublicKey{signer.PublicKey()}, Dir: filepath.Join(dir, "guest")}
	return os.MkdirAll(c.sshd.Dir, 0o700)
}

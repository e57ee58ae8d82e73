//go:build e2e

package e2e

import (
	"encoding/pem"
	"errors"
	"os"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/crypto/ssh"

	"github.com/virtkit/virtkit/tests/sshd"
)

// sshKeyCommand writes a new private key to FILE, and its public one to FILE.pub.
func sshKeyCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: sshkey FILE")
	}
	ts.Check(writeKey(ts.MkAbs(args[0])))
}

// writeKey writes a new private key to a file, and its public one beside it.
func writeKey(file string) error {
	key, signer, err := sshd.NewKey()
	if err != nil {
		return err
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(file, pem.EncodeToMemory(block), 0o600),
		os.WriteFile(file+".pub", ssh.MarshalAuthorizedKey(signer.PublicKey()), 0o600))
}

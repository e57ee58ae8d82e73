//go:build e2e

package e2e

import (
	"encoding/pem"
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
	key, signer, err := sshd.NewKey()
	ts.Check(err)
	block, err := ssh.MarshalPrivateKey(key, "")
	ts.Check(err)
	file := ts.MkAbs(args[0])
	ts.Check(os.WriteFile(file, pem.EncodeToMemory(block), 0o600))
	ts.Check(os.WriteFile(file+".pub", ssh.MarshalAuthorizedKey(signer.PublicKey()), 0o600))
}

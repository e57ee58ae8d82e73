// Package credentials sets up the users of a guest by spec.accessCredentials, through the guest agent: the public keys
// of users and their passwords, from Secrets that the kubelet keeps current in the pod.
//
//	VMI ─► NewPlan ─► Plan.Read (the pod's secret volumes) ─► Wanted ─► Apply (guest agent)
//
// NewPlan and what Apply says to the agent are pure. No key and no password is ever part of an error or a log line.
package credentials

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/launcher/agent"
	"github.com/virtkit/virtkit/pkg/vm/disk"
	"github.com/virtkit/virtkit/pkg/vm/surface"
)

// maxUsers bounds the users that one Secret may set passwords of.
const maxUsers = 64

// Plan holds what the agent is to do.
type Plan struct {
	// Keys are the Secrets with public keys of each user.
	Keys map[string][]string `json:",omitempty"`
	// Passwords are the Secrets with passwords.
	Passwords []string `json:",omitempty"`
}

// NewPlan takes from a VMI what concerns the agent; cloud-init's part is pkg/vm/disk's.
func NewPlan(spec *v1.VirtualMachineInstanceSpec) Plan {
	p := Plan{Keys: map[string][]string{}}
	for i := range spec.AccessCredentials {
		c := &spec.AccessCredentials[i]
		switch {
		case c.SSHPublicKey != nil && c.SSHPublicKey.PropagationMethod.QemuGuestAgent != nil &&
			c.SSHPublicKey.Source.Secret != nil:
			for _, user := range c.SSHPublicKey.PropagationMethod.QemuGuestAgent.Users {
				p.Keys[user] = appendNew(p.Keys[user], c.SSHPublicKey.Source.Secret.SecretName)
			}
		case c.UserPassword != nil && c.UserPassword.PropagationMethod.QemuGuestAgent != nil &&
			c.UserPassword.Source.Secret != nil:
			p.Passwords = appendNew(p.Passwords, c.UserPassword.Source.Secret.SecretName)
		}
	}
	return p
}

// Empty reports whether there is nothing for the agent to do.
func (p Plan) Empty() bool { return len(p.Keys) == 0 && len(p.Passwords) == 0 }

// secrets returns the names of all Secrets that the plan reads, sorted, once each.
func (p Plan) secrets() []string {
	out := slices.Clone(p.Passwords)
	for _, names := range p.Keys {
		out = append(out, names...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Wanted describes the guest's users as they shall be.
type Wanted struct {
	// Keys are the lines of each user's authorized_keys, Passwords the users' passwords.
	Keys      map[string][]string
	Passwords map[string]string
}

// Read reads the Secrets below dir.
func (p Plan) Read(dir string) (Wanted, error) {
	values := map[string]map[string][]byte{}
	for _, secret := range p.secrets() {
		var err error
		if values[secret], err = disk.ReadSecret(filepath.Join(dir, secret)); err != nil {
			return Wanted{}, fmt.Errorf("secret %s: %w", secret, err)
		}
	}
	w := Wanted{Keys: map[string][]string{}, Passwords: map[string]string{}}
	for user, secrets := range p.Keys {
		w.Keys[user] = []string{}
		for _, secret := range secrets {
			keys, err := disk.PublicKeys(values[secret])
			if err != nil {
				return Wanted{}, fmt.Errorf("secret %s: %w", secret, err)
			}
			for _, key := range keys {
				w.Keys[user] = appendNew(w.Keys[user], key)
			}
		}
	}
	for _, secret := range p.Passwords {
		if n := len(values[secret]); n > maxUsers {
			return Wanted{}, fmt.Errorf("secret %s: it has %d users; the most is %d", secret, n, maxUsers)
		}
		for user, password := range values[secret] {
			text := strings.TrimRight(string(password), "\r\n")
			switch {
			case !surface.GuestUser(user):
				return Wanted{}, fmt.Errorf("secret %s: key %q is not the name of a user", secret, user)
			case !surface.GuestPassword(text):
				return Wanted{}, fmt.Errorf("secret %s: the password of %s must be one line of 1 to %d bytes", secret,
					user, surface.MaxGuestPassword)
			}
			w.Passwords[user] = text
		}
	}
	return w, nil
}

// Apply sets the guest's users up, through send, which takes a command for the agent and returns its reply. It goes on
// after a failure, so that one missing user blocks no other; the error names each. before, which may be empty, is what
// was applied last: passwords that are still the same are not set again.
func Apply(send func(command string) (string, error), w, before Wanted) error {
	var errs []error
	for _, user := range slices.Sorted(maps.Keys(w.Keys)) {
		if err := do(send, "guest-ssh-add-authorized-keys",
			map[string]any{"username": user, "keys": w.Keys[user], "reset": true}); err != nil {
			errs = append(errs, fmt.Errorf("authorized keys of user %s: %w", user, err))
		}
	}
	for _, user := range slices.Sorted(maps.Keys(w.Passwords)) {
		password := w.Passwords[user]
		if before.Passwords[user] == password {
			continue
		}
		encoded := base64.StdEncoding.EncodeToString([]byte(password))
		if err := do(send, "guest-set-user-password",
			map[string]any{"username": user, "password": encoded, "crypted": false}); err != nil {
			errs = append(errs, fmt.Errorf("password of user %s: %w", user, err))
		}
	}
	return errors.Join(errs...)
}

func do(send func(string) (string, error), command string, arguments map[string]any) error {
	_, err := send(agent.Command(command, arguments))
	return err
}

func appendNew(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

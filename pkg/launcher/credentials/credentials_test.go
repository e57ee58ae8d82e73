package credentials

import (
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/vm/surface"
)

const spec = `
accessCredentials:
- sshPublicKey: {source: {secret: {secretName: team}}, propagationMethod: {qemuGuestAgent: {users: [root, ann]}}}
- sshPublicKey: {source: {secret: {secretName: ann}}, propagationMethod: {qemuGuestAgent: {users: [ann]}}}
- sshPublicKey: {source: {secret: {secretName: seed}}, propagationMethod: {noCloud: {}}}
- userPassword: {source: {secret: {secretName: passwords}}, propagationMethod: {qemuGuestAgent: {}}}
`

func plan(t *testing.T) Plan {
	t.Helper()
	s := &v1.VirtualMachineInstanceSpec{}
	if err := yaml.UnmarshalStrict([]byte(spec), s); err != nil {
		t.Fatal(err)
	}
	return NewPlan(s)
}

func secrets(t *testing.T, values map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for _, secret := range []string{"team", "ann", "passwords"} {
		if err := os.Mkdir(filepath.Join(dir, secret), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range values {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestPlanAndRead(t *testing.T) {
	p := plan(t)
	want := Plan{Keys: map[string][]string{"root": {"team"}, "ann": {"team", "ann"}}, Passwords: []string{"passwords"}}
	if diff := cmp.Diff(want, p); diff != "" {
		t.Error(diff)
	}
	if p.Empty() || !NewPlan(&v1.VirtualMachineInstanceSpec{}).Empty() {
		t.Error("Empty is wrong")
	}
	got, err := p.Read(secrets(t, map[string]string{
		"team/a":         "ssh-rsa AAAA\nssh-rsa BBBB\n",
		"ann/k":          "ssh-rsa AAAA\nssh-ed25519 CCCC",
		"passwords/root": "s3cret\n",
	}))
	if err != nil {
		t.Fatal(err)
	}
	wanted := Wanted{
		Keys: map[string][]string{
			"root": {"ssh-rsa AAAA", "ssh-rsa BBBB"},
			"ann":  {"ssh-rsa AAAA", "ssh-rsa BBBB", "ssh-ed25519 CCCC"},
		},
		Passwords: map[string]string{"root": "s3cret"},
	}
	if diff := cmp.Diff(wanted, got); diff != "" {
		t.Error(diff)
	}
}

func TestReadRefuses(t *testing.T) {
	for name, value := range map[string]string{
		"passwords/root": "two\nlines", "passwords/ann": "", "passwords/a;b": "x",
		"passwords/big": strings.Repeat("p", surface.MaxGuestPassword+1),
	} {
		_, err := plan(t).Read(secrets(t, map[string]string{name: value}))
		if err == nil || !strings.HasPrefix(err.Error(), "secret passwords: ") ||
			value != "" && strings.Contains(err.Error(), value) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := plan(t).Read(t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no secrets: %v", err)
	}
}

func TestApply(t *testing.T) {
	var sent []string
	send := func(command string) (string, error) {
		sent = append(sent, command)
		if strings.Contains(command, "ghost") {
			return "", errors.New("no such user")
		}
		return `{"return":{}}`, nil
	}
	w := Wanted{
		Keys:      map[string][]string{"root": {"ssh-rsa A"}, "ann": {}, "ghost": {"ssh-rsa A"}},
		Passwords: map[string]string{"root": "hidden", "ann": "same"},
	}
	err := Apply(send, w, Wanted{Passwords: map[string]string{"ann": "same"}})
	if err == nil || err.Error() != "authorized keys of user ghost: no such user" {
		t.Errorf("%v", err)
	}
	want := []string{
		`{"execute":"guest-ssh-add-authorized-keys","arguments":{"keys":[],"reset":true,"username":"ann"}}`,
		`{"execute":"guest-ssh-add-authorized-keys","arguments":{"keys":["ssh-rsa A"],"reset":true,"username":"ghost"}}`,
		`{"execute":"guest-ssh-add-authorized-keys","arguments":{"keys":["ssh-rsa A"],"reset":true,"username":"root"}}`,
		`{"execute":"guest-set-user-password","arguments":{"crypted":false,"password":"` +
			base64.StdEncoding.EncodeToString([]byte("hidden")) + `","username":"root"}}`,
	}
	if !slices.Equal(sent, want) {
		t.Errorf("sent %s", strings.Join(sent, "\n"))
	}
}

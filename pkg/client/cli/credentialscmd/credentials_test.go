package credentialscmd

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/action/credentials"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/clitest"
)

// TestUsage has what no cluster is asked for.
func TestUsage(t *testing.T) {
	const key = "ssh-ed25519=AAAA"
	for line, want := range map[string]string{
		"add-ssh-key demo --value=" + key: "--user is missing",
		"add-ssh-key demo -u root --create-secret --update-secret --value=" + key: "--create-secret and " +
			"--update-secret contradict each other",
		"add-ssh-key demo -u root --file=a.pub --value=" + key:     "--file and --value cannot both be given",
		"remove-ssh-key demo -u root":                              "the key is missing",
		"remove-ssh-key demo -u root --file=absent.pub":            "--file: absent.pub: there is no such file here",
		"add-ssh-key demo -u root --value=" + key + " -o colour":   `unknown output format "colour"`,
		"add-ssh-key vmi/demo -u root --value=" + key:              `"vmi/demo": only a VM has credentials`,
		"set-password demo -u root":                                "the password is missing",
		"set-password demo -u root -p x --password-file=y":         "--password-file cannot both be given",
		"set-password demo -u root --password-file=absent":         "--password-file: absent: there is no such file",
		"set-password demo -u root -p x --dry-run=client":          "--dry-run=client cannot know",
		"remove-ssh-key demo -u root --value=-----BEGIN":           "--value: ",
		"set-password demo another -u root --password-file=absent": "takes the name of one VM",
	} {
		_, _, err := clitest.Command{New: NewCmdCredentials}.Run(t, strings.Fields(line)...)
		if err == nil || !strings.Contains(err.Error(), want) || cli.ExitCode(err) != cli.ExitUsage {
			t.Errorf("credentials %s: %v, exit code %d", line, err, cli.ExitCode(err))
		}
	}
}

// TestPasswordFile has what a file gives as password: its line without the end, and nothing of it is shown.
func TestPasswordFile(t *testing.T) {
	for text, want := range map[string]string{
		"secret\n":        "secret",
		"secret\r\n":      "secret",
		"secret":          "secret",
		" two words \n":   " two words ",
		"":                "",
		"\n":              "",
		"first\nsecond\n": "",
	} {
		api := clienttest.New(t)
		api.Put("/apis/kubevirt.io/v1/namespaces/team-a/virtualmachines/demo", vm())
		var sent corev1.Secret
		api.Put("/api/v1/namespaces/team-a/secrets/passwords", http.HandlerFunc(
			func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPatch {
					body, err := io.ReadAll(r.Body)
					if err == nil {
						err = json.Unmarshal(body, &sent)
					}
					if err != nil {
						t.Error(err)
					}
				}
				w.Header().Set("Content-Type", "application/json")
				if err := json.NewEncoder(w).Encode(corev1.Secret{}); err != nil {
					t.Error(err)
				}
			}))
		out, errOut, err := clitest.Command{
			New: NewCmdCredentials, Stdin: text, Kubeconfig: api.Kubeconfig("team-a"),
		}.Run(t, "set-password", "demo", "-u", "root", "--password-file=-", "--force")
		if got := string(sent.Data["root"]); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: password %q, %v", text, got, err)
		}
		if want != "" && out+errOut != "Successfully set password in secret \"passwords\"\n" {
			t.Errorf("%q: stdout %q, stderr %q", text, out, errOut)
		}
	}
}

func vm() *v1.VirtualMachine {
	return &v1.VirtualMachine{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: "VirtualMachine"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "demo"},
		Spec: v1.VirtualMachineSpec{Template: &v1.VirtualMachineInstanceTemplateSpec{
			Spec: v1.VirtualMachineInstanceSpec{AccessCredentials: []v1.AccessCredential{{
				UserPassword: &v1.UserPasswordAccessCredential{
					Source: v1.UserPasswordAccessCredentialSource{
						Secret: &v1.AccessCredentialSecretSource{SecretName: "passwords"},
					},
					PropagationMethod: v1.UserPasswordAccessCredentialPropagationMethod{
						QemuGuestAgent: &v1.QemuGuestAgentUserPasswordAccessCredentialPropagation{},
					},
				},
			}}},
		}},
	}
}

// TestReport has a line for each Secret, by what has happened to it.
func TestReport(t *testing.T) {
	secrets := []credentials.SecretChange{
		{Name: "a", Change: credentials.Created},
		{Name: "b", Change: credentials.Updated},
		{Name: "c", Change: credentials.Unchanged},
	}
	const set = `Successfully set password in secret "a" (server dry run)
Successfully set password in secret "b" (server dry run)
Secret "c" already contains this password. (server dry run)
`
	for _, test := range []struct {
		verb    Verb
		dryRun  cli.DryRun
		secrets []credentials.SecretChange
		want    string
	}{
		{verb: AddSSHKey, secrets: secrets, want: `Successfully added the key to secret "a"
Successfully added the key to secret "b"
Secret "c" already contains this SSH key.
`},
		{verb: RemoveSSHKey, secrets: secrets[1:], want: `Successfully removed the key from secret "b"
Secret "c" does not contain this SSH key.
`},
		{verb: SetPassword, dryRun: cli.DryRunServer, secrets: secrets, want: set},
		{verb: RemoveSSHKey, want: "No secrets associated with user root\n"},
	} {
		var out bytes.Buffer
		f := cli.NewFactory("virtctl", &cli.IOStreams{Out: &out}, func(string) string { return "" })
		o := &Options{Factory: f, Verb: test.verb, DryRun: test.dryRun, User: "root"}
		if err := o.report(&credentials.Change{Secrets: test.secrets}); err != nil || out.String() != test.want {
			t.Errorf("%s: %v, got\n%swant\n%s", test.verb, err, out.String(), test.want)
		}
	}
}

// A guest that gets it after a restart only is said so, to who sits at a terminal.
func TestReportRestart(t *testing.T) {
	for _, test := range []struct{ tty, required, says bool }{
		{tty: true, required: true, says: true}, {tty: true}, {required: true},
	} {
		var out, errOut bytes.Buffer
		f := cli.NewFactory("virtctl", &cli.IOStreams{Out: &out, ErrOut: &errOut, ErrIsTTY: test.tty},
			func(string) string { return "" })
		change := &credentials.Change{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "demo"}, RestartRequired: test.required,
			Secrets: []credentials.SecretChange{{Name: "a", Change: credentials.Created}},
		}
		err := (&Options{Factory: f, Verb: AddSSHKey}).report(change)
		want := ""
		if test.says {
			want = "The guest gets it after `virtctl restart demo -n team-a`.\n"
		}
		if err != nil || errOut.String() != want {
			t.Errorf("%+v: %q, %v", test, errOut.String(), err)
		}
	}
}

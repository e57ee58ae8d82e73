//go:build slow

package slow

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/tests/instance"
	"github.com/virtkit/virtkit/tests/sshd"
)

// bootTime bounds create → guest agent, login or ssh of a guest on a machine that has other things to do, too.
const bootTime = 15 * time.Minute

// image is the guest's container disk.
func image() string { return "ghcr.io/virtkit/debian-disk:" + instance.ImageTag() }

var theCluster *instance.Instance

func TestMain(m *testing.M) {
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "slow:", err)
		code = 1
	}
	os.Exit(code)
}

func runTests(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if name := os.Getenv("VIRTKIT_E2E_CLUSTER"); name != "" {
		theCluster, err = instance.Attach(name)
	} else {
		theCluster, err = instance.Start(ctx, "slow", "--multus", "--image", "../../bin/images/debian-disk.tar")
	}
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, theCluster.Down()) }()
	if err := theCluster.Install(ctx); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// guest is a VM under test, and how to get into it.
type guest struct {
	*instance.Instance
	ns, name string
	dir      string // keys and known hosts
}

// namespace makes a namespace that goes away with the test, with Secrets in it.
func namespace(t *testing.T, secrets map[string]map[string]string) string {
	t.Helper()
	ns, err := theCluster.Kube.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			GenerateName: "slow-", Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
		}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := theCluster.Kube.CoreV1().Namespaces().Delete(ctx, ns.Name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("delete namespace %s: %v", ns.Name, err)
		}
	})
	for name, data := range secrets {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: data}
		if _, err := theCluster.Kube.CoreV1().Secrets(ns.Name).Create(t.Context(),
			secret, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return ns.Name
}

// create makes the VM of a file in testdata; when the test has failed, what a person would look at is logged.
func create(t *testing.T, ns, file, dir string) *guest {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	vm := &v1.VirtualMachine{}
	if err := yaml.UnmarshalStrict(bytes.ReplaceAll(data, []byte("@IMAGE@"), []byte(image())), vm); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	vm.Namespace = ns
	if err := theCluster.Client.Create(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	return follow(t, ns, vm.Name, dir)
}

// follow is a VM that there is.
func follow(t *testing.T, ns, name, dir string) *guest {
	t.Helper()
	g := &guest{Instance: theCluster, ns: ns, name: name, dir: dir}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, verb := range []string{"describe", "why", "logs"} {
			stdout, stderr, err := g.Virtctl(ctx, nil, "-n", g.ns, verb, g.name)
			t.Logf("virtctl %s %s: %v\n%s%s", verb, g.name, err, stdout, stderr)
		}
	})
	return g
}

// booted waits until the guest's agent is there, and cloud-init is done with what it was told.
func (g *guest) booted(t *testing.T, key string) {
	t.Helper()
	g.virtctl(t, "wait", "--for=agent", "--timeout", bootTime.String())
	eventually(t, bootTime, "cloud-init is done", func() string {
		out, err := g.trySSH(t.Context(), "debian", key, "",
			"sudo cloud-init status --wait || sudo cloud-init status --long; true")
		if err != nil {
			return err.Error()
		}
		if !strings.Contains(out, "status: done") {
			return out
		}
		return ""
	})
}

func (g *guest) knownHosts() string { return filepath.Join(g.dir, "known_hosts") }

// virtctl runs a verb of virtctl on the guest and returns its standard output.
func (g *guest) virtctl(t *testing.T, verb string, args ...string) string {
	t.Helper()
	stdout, stderr, err := g.Virtctl(t.Context(), nil, append([]string{"-n", g.ns, verb, g.name}, args...)...)
	if err != nil {
		t.Fatalf("virtctl %s %s %s: %v\n%s%s", verb, g.name, strings.Join(args, " "), err, stdout, stderr)
	}
	return stdout
}

// trySSH runs a command of a shell in the guest as a user who has a key in the file, with input.
func (g *guest) trySSH(ctx context.Context, user, key, input, command string) (string, error) {
	stdout, stderr, err := g.Virtctl(ctx, strings.NewReader(input), "-n", g.ns, "ssh", user+"@"+g.name, "-i", key,
		"--timeout", "30s",
		"--known-hosts", g.knownHosts(), "--strict-host-key-checking", "accept-new", "-c", command)
	if err != nil {
		return "", fmt.Errorf("ssh %s@%s %s: %w\n%s%s", user, g.name, command, err, stdout, stderr)
	}
	return strings.TrimSpace(stdout), nil
}

// ssh is trySSH for a user who can log in.
func (g *guest) ssh(t *testing.T, user, key, command string) string {
	t.Helper()
	out, err := g.trySSH(t.Context(), user, key, "", command)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// expect checks what commands in the guest print.
func (g *guest) expect(t *testing.T, user, key string, want map[string]string) {
	t.Helper()
	for command, want := range want {
		if got := g.ssh(t, user, key, command); got != want {
			t.Errorf("%s: %s says %q, want %q", g.name, command, got, want)
		}
	}
}

func (g *guest) vmi(t *testing.T) *v1.VirtualMachineInstance {
	t.Helper()
	vmi := &v1.VirtualMachineInstance{}
	if err := g.Client.Get(t.Context(), client.ObjectKey{Namespace: g.ns, Name: g.name}, vmi); err != nil {
		t.Fatal(err)
	}
	return vmi
}

// condition is the status of one of the VMI's conditions, "" when it has none.
func (g *guest) condition(t *testing.T, kind v1.VirtualMachineInstanceConditionType) corev1.ConditionStatus {
	t.Helper()
	for _, c := range g.vmi(t).Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

// subresource asks for one of the VMI's subresources: GET into a value, or PUT with a body.
func (g *guest) subresource(t *testing.T, verb, name, body string, into any) error {
	t.Helper()
	path := fmt.Sprintf("/apis/subresources.kubevirt.io/v1/namespaces/%s/virtualmachineinstances/%s/%s", g.ns, g.name,
		name)
	rest := g.Kube.CoreV1().RESTClient().Verb(verb).AbsPath(path)
	if body != "" {
		rest = rest.Body([]byte(body))
	}
	data, err := rest.Do(t.Context()).Raw()
	if err != nil || into == nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// eventually waits until the condition gives "", and else fails with what it said last.
func eventually(t *testing.T, within time.Duration, what string, condition func() string) {
	t.Helper()
	deadline := time.Now().Add(within)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		last := condition()
		if last == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %s", what, within, last)
		}
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatalf("%s: %v: %s", what, t.Context().Err(), last)
		}
	}
}

// newKey writes a private key to a file of the directory and returns the file and the public key.
func newKey(t *testing.T, dir, name string) (file, public string) {
	t.Helper()
	key, signer, err := sshd.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(dir, name)
	if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, string(ssh.MarshalAuthorizedKey(signer.PublicKey()))
}

//go:build e2e

package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/pkg/vm/snapshots"
)

// user runs virtctl as a person with a journal of their own: the last verb in it is theirs, whatever other tests do.
type user struct {
	*guest
	state string
}

// virtctl returns what it writes, and fails the test when it fails.
func (u *user) virtctl(t *testing.T, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), u.Bin("virtctl"),
		append([]string{"--kubeconfig", u.Kubeconfig, "--context", u.Name, "-n", u.ns}, args...)...)
	cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+u.state)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("virtctl %s: %v\n%s%s", strings.Join(args, " "), err, &stdout, &stderr)
	}
	return stdout.String()
}

// replaced are the claims that restores have replaced and kept.
func (u *user) replaced(t *testing.T) (claims []string) {
	t.Helper()
	list, err := u.Kube.CoreV1().PersistentVolumeClaims(u.ns).List(t.Context(),
		metav1.ListOptions{LabelSelector: snapshots.KeptLabel})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		claims = append(claims, list.Items[i].Name)
	}
	slices.Sort(claims)
	return claims
}

// undoRestore takes a restore back whose claims the stopped VM has: it starts with the disks from before that, which
// have numbers.
func (u *user) undoRestore(t *testing.T, numbers []int) {
	t.Helper()
	restored := claimsOf(u.vm(t))
	slices.Sort(restored)
	if said := u.virtctl(t, "undo", "--wait"); !strings.Contains(said, "which is undone") {
		t.Errorf("undo: %s", said)
	}
	before := append(slices.Clone(counters), plugged)
	if now := claimsOf(u.vm(t)); !slices.Equal(now, before) {
		t.Errorf("the VM has the claims %v, and had %v before the restore", now, before)
	}
	if kept := u.replaced(t); !slices.Equal(kept, restored) {
		t.Errorf("kept and not in use are %v, and the restored VM had %v", kept, restored)
	}
	u.virtctl(t, "start", u.name)
	u.waitLogin(t)
	con := u.shell(t, "")
	u.mountAll(t, con, plugged)
	if now := counts(t, con, plugged); !slices.Equal(now, numbers) {
		t.Errorf("the disks have %v, and had %v before the restore", now, numbers)
	}
}

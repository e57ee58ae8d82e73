package root

import (
	"bytes"
	"io"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/guestfs/guestfstest"
	"github.com/virtkit/virtkit/pkg/stream"
)

const mainChild = "VIRTCTL_TEST_ARGUMENTS"

// TestMainChild is virtctl, with the arguments that a test gives it.
func TestMainChild(t *testing.T) {
	line := os.Getenv(mainChild)
	if line == "" {
		t.Skip("for other tests")
	}
	os.Args = append([]string{"virtctl"}, strings.Fields(line)...)
	os.Exit(Main())
}

// virtctl returns a virtctl, by a shell that sets it up, with a session at the server's claim.
func virtctl(t *testing.T, s *guestfstest.Server, setup string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", setup+`exec "$0" "$@"`, os.Args[0], "-test.run=^TestMainChild$")
	cmd.Env = append(os.Environ(),
		mainChild+"=--kubeconfig "+s.Kubeconfig(guestfstest.Namespace)+" guestfs disk -- x", "HOME="+t.TempDir())
	return cmd
}

// A hangup that nohup(1) has virtctl ignore does not end a session.
func TestNohup(t *testing.T) {
	t.Parallel()
	s := guestfstest.New(t, corev1.PersistentVolumeFilesystem)
	cmd := virtctl(t, s, `trap "" HUP; `)
	s.Run = func(process stream.Packets, _ []string, _ url.Values) int {
		if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Error(err)
		}
		time.Sleep(500 * time.Millisecond) // for what is not to happen
		if _, err := process.Write([]byte("\x01done")); err != nil {
			return guestfstest.Cut
		}
		return 0
	}
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	if out, err := cmd.Output(); err != nil || string(out) != "done" {
		t.Errorf("%v, %q\n%s", err, out, &errOut)
	}
}

// A reader of a session's output that leaves does not keep virtctl from deleting the pod.
func TestReaderLeaves(t *testing.T) {
	t.Parallel()
	s := guestfstest.New(t, corev1.PersistentVolumeFilesystem)
	cmd := virtctl(t, s, "")
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.Run = func(process stream.Packets, _ []string, _ url.Values) int {
		for {
			if _, err := process.Write([]byte("\x01line\n")); err != nil {
				return guestfstest.Cut
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("line\n"))); err != nil {
		t.Error(err)
	}
	if err := out.Close(); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil || s.Made() != nil {
		t.Errorf("%v, pod %v\n%s", err, s.Made(), &errOut)
	}
}

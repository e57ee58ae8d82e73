//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/names"
)

// forgetCrashes has the VM start its guest at once after the next crash: after those of other cases it would wait
// longer each time.
func (f *faulty) forgetCrashes(t *testing.T) {
	t.Helper()
	none := client.RawPatch(types.MergePatchType, []byte(`{"status":{"startFailure":null}}`))
	if err := f.Client.Status().Patch(t.Context(), f.vm(t), none); err != nil {
		t.Fatal(err)
	}
}

// killProgram kills a process of virt-local's, and waits for the next one.
func (f *faulty) killProgram(t *testing.T, name, node string) {
	t.Helper()
	pid := f.component(t, name, node)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, name+" runs again", func() string {
		status, err := f.Status(t.Context())
		if err != nil {
			return err.Error()
		}
		if now := status.PID(name, node); now == 0 || now == pid {
			return "not yet"
		}
		return ""
	})
}

// killControlPlane kills etcd, the API server, the controller manager and the scheduler, which are one process, and has
// virt-local start it again.
func (f *faulty) killControlPlane(t *testing.T) {
	t.Helper()
	pid, err := f.ControlPlane()
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "it has ended", func() string {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			return fmt.Sprint(err)
		}
		return ""
	})
	if err := f.Repair(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// component is a process of virt-local's.
func (f *faulty) component(t *testing.T, name, node string) int {
	t.Helper()
	status, err := f.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pid := status.PID(name, node)
	if pid == 0 {
		t.Fatalf("%s %s does not run", name, node)
	}
	return pid
}

func (f *faulty) controllers(t *testing.T) (pids []int) {
	t.Helper()
	for _, pod := range f.componentPods(t, names.VirtController) {
		pids = append(pids, named(processes(t, string(pod.UID)), processServer)...)
	}
	return pids
}

func (f *faulty) stopControllers(t *testing.T) {
	t.Helper()
	for _, pid := range f.controllers(t) {
		f.freeze(t, pid)
	}
}

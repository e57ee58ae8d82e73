//go:build integration

package driver

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/cmd/virt-local-csi/internal/pool"
)

const inNamespace = "VIRT_LOCAL_CSI_TEST"

// TestMain runs the tests in a mount namespace of their own, as the driver runs. Without root there is none, and those
// that mount are skipped.
func TestMain(m *testing.M) {
	if os.Getenv(inNamespace) != "" || os.Geteuid() != 0 {
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inNamespace+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		if cmd.ProcessState == nil {
			os.Stderr.WriteString("a mount namespace for these tests: " + err.Error() + "\n")
		}
		os.Exit(1)
	}
}

// openPool makes a pool that the test takes away.
func openPool(t *testing.T) *pool.Pool {
	t.Helper()
	needRoot(t)
	return openPoolIn(t, t.TempDir())
}

// needRoot skips tests that mount for all but root.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may mount and attach loop devices: run make test-integration with sudo")
	}
}

// openPoolIn makes a pool in a directory, which the test takes away.
func openPoolIn(t *testing.T, dir string) *pool.Pool {
	t.Helper()
	p, err := pool.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if mounted, err := isMountPoint(p.Root); err != nil || mounted {
			if err := errors.Join(err, unix.Unmount(p.Root, unix.MNT_DETACH)); err != nil {
				t.Error(err)
			}
		}
		if err := pool.Release(dir); err != nil {
			t.Error(err)
		}
		out, err := exec.Command("losetup", "--noheadings", "--list", "--output", "BACK-FILE").Output()
		if err != nil || strings.Contains(string(out), dir) {
			t.Errorf("loop devices are left: %s %v", out, err)
		}
	})
	return p
}

// The suite of the CSI project (https://github.com/kubernetes-csi/csi-test), for volumes with file systems, for block
// volumes, and for the driver that can do less.
func TestSanity(t *testing.T) {
	p := openPool(t)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	config := sanity.NewTestConfig()
	for _, c := range []struct{ driver, access string }{{Name, "mount"}, {Name, "block"}, {Plain, "mount"}} {
		dir := t.TempDir()
		config := config
		config.TestVolumeAccessType = c.access
		config.TestVolumeSize, config.TestVolumeExpandSize = 320<<20, 400<<20
		config.TargetPath, config.StagingPath = filepath.Join(dir, "target"), filepath.Join(dir, "staging")
		config.Address = filepath.Join(dir, "csi.sock")
		served := make(chan error, 1)
		d := &Driver{Name: c.driver, Pool: p, Node: "node1"}
		go func() { served <- d.Serve(ctx, config.Address) }()
		suite := sanity.GinkgoTest(&config)
		t.Cleanup(func() {
			suite.Finalize()
			cancel()
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
	}
	gomega.RegisterFailHandler(ginkgo.Fail)
	ginkgo.RunSpecs(t, "CSI")
}

//go:build e2e

package e2e

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/tests/instance"
)

// An installation that comes with another launcher brings the guests to it, by its strategy: one moves, and does not
// notice; one that cannot is started anew. Not parallel: it would move the guests of every other test.
func TestUpgrade(t *testing.T) {
	c := theCluster
	ns := c.namespace(t, "restricted")
	moves := c.create(t, newVM(ns, "moves", v1.RunStrategyAlways))
	stays := c.create(t, newVM(ns, "stays", v1.RunStrategyAlways, func(vm *v1.VirtualMachine) {
		vm.Spec.Template.Spec.Domain.Devices.Interfaces[0].InterfaceBindingMethod = v1.InterfaceBindingMethod{
			Bridge: &v1.InterfaceBridge{},
		}
	}))
	moves.waitLogin(t)
	stays.waitPhase(t, bootTime, v1.Running)
	con := moves.openConsole(t, "")
	con.login(t, "root", "tiny")
	con.run(t, "MEMORY=still-here")
	mover, stayer := moves.vmi(t), stays.vmi(t)

	newer := "ghcr.io/virtkit/virt-launcher:e2e-upgrade"
	archive := filepath.Join(t.TempDir(), "launcher.tar")
	if err := retag(c.Bin("images/virt-launcher.tar"), archive, instance.Launcher(), newer); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), c.Bin("virt-local"),
		"load-image", "--name", c.Name, archive).CombinedOutput(); err != nil {
		t.Fatalf("load the newer launcher: %v\n%s", err, out)
	}
	strategy := v1.KubeVirtWorkloadUpdateStrategy{
		WorkloadUpdateMethods: []v1.WorkloadUpdateMethod{
			v1.WorkloadUpdateMethodLiveMigrate, v1.WorkloadUpdateMethodEvict,
		},
		BatchEvictionInterval: &metav1.Duration{Duration: 5 * time.Second},
	}
	c.setStrategy(t, strategy)
	defer c.setStrategy(t, v1.KubeVirtWorkloadUpdateStrategy{})
	c.setLauncher(t, newer)
	defer func() {
		c.setStrategy(t, v1.KubeVirtWorkloadUpdateStrategy{}) // before all others are outdated
		c.setLauncher(t, instance.Launcher())
	}()

	for _, g := range []*guest{moves, stays} {
		eventually(t, 2*bootTime, g.name+" runs in the newer launcher", func() string {
			vmi := g.vmi(t)
			switch {
			case vmi == nil:
				return "it is not there"
			case vmi.Status.Phase != v1.Running || vmi.Status.LauncherContainerImageVersion != newer:
				return fmt.Sprintf("phase %s in %s", vmi.Status.Phase, vmi.Status.LauncherContainerImageVersion)
			}
			if _, ok := vmi.Labels[v1.OutdatedLauncherImageLabel]; ok {
				return "it is labelled outdated"
			}
			return ""
		})
	}
	if now := moves.vmi(t); now.UID != mover.UID || now.Status.NodeName == mover.Status.NodeName {
		t.Errorf("the guest that can move is %s on %s, was %s on %s", now.UID, now.Status.NodeName, mover.UID,
			mover.Status.NodeName)
	}
	con = moves.openConsole(t, "")
	con.send(t, "\r")
	if got := con.run(t, "echo $MEMORY"); got != "still-here" {
		t.Errorf("the guest is another: %q", got)
	}
	if now := stays.vmi(t); now.UID == stayer.UID {
		t.Error("the guest that cannot move runs in the newer launcher, and was not started anew")
	}
	var migrations v1.VirtualMachineInstanceMigrationList
	if err := c.Client.List(t.Context(), &migrations, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	if len(migrations.Items) != 1 || !strings.HasPrefix(migrations.Items[0].Name, "kubevirt-workload-update-") ||
		migrations.Items[0].Spec.VMIName != moves.name {
		t.Errorf("migrations %+v", migrations.Items)
	}
	eventually(t, 30*time.Second, "nobody is outdated", func() string {
		kv := &v1.KubeVirt{}
		key := client.ObjectKey{Namespace: names.Namespace, Name: names.KubeVirt}
		if err := c.Client.Get(t.Context(), key, kv); err != nil {
			return err.Error()
		}
		if n := kv.Status.OutdatedVirtualMachineInstanceWorkloads; n == nil || *n != 0 {
			return fmt.Sprintf("status.outdatedVirtualMachineInstanceWorkloads is %v", n)
		}
		return ""
	})
}

func (c *cluster) setStrategy(t *testing.T, strategy v1.KubeVirtWorkloadUpdateStrategy) {
	t.Helper()
	kv := &v1.KubeVirt{}
	key := client.ObjectKey{Namespace: names.Namespace, Name: names.KubeVirt}
	if err := c.Client.Get(t.Context(), key, kv); err != nil {
		t.Fatal(err)
	}
	before := kv.DeepCopy()
	kv.Spec.WorkloadUpdateStrategy = strategy
	if err := c.Client.Patch(t.Context(), kv, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// setLauncher has virt-controller make its pods of another image, and waits until it is rolled out.
func (c *cluster) setLauncher(t *testing.T, image string) {
	t.Helper()
	deployment := &appsv1.Deployment{}
	key := client.ObjectKey{Namespace: names.Namespace, Name: names.VirtController}
	if err := c.Client.Get(t.Context(), key, deployment); err != nil {
		t.Fatal(err)
	}
	before := deployment.DeepCopy()
	env := deployment.Spec.Template.Spec.Containers[0].Env
	for i := range env {
		if env[i].Name == "LAUNCHER_IMAGE" {
			env[i].Value = image
		}
	}
	if err := c.Client.Patch(t.Context(), deployment, client.StrategicMergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	eventually(t, 2*time.Minute, "virt-controller is rolled out", func() string {
		if err := c.Client.Get(t.Context(), key, deployment); err != nil {
			return err.Error()
		}
		s := deployment.Status
		if want := *deployment.Spec.Replicas; s.ObservedGeneration < deployment.Generation ||
			s.UpdatedReplicas < want || s.AvailableReplicas < want || s.Replicas > want {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
}

// retag copies an archive of an image, as docker save writes them, under another name.
func retag(from, to, name, other string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.Create(to)
	if err != nil {
		return err
	}
	defer target.Close()
	out := tar.NewWriter(target)
	found := false
	for in := tar.NewReader(source); ; {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", from, err)
		}
		var body io.Reader = in
		if header.Name == "manifest.json" {
			text, err := io.ReadAll(in)
			if err != nil {
				return fmt.Errorf("read %s: %w", from, err)
			}
			renamed := strings.Replace(string(text), name, other, 1)
			found, header.Size, body = renamed != string(text), int64(len(renamed)), strings.NewReader(renamed)
		}
		if err := out.WriteHeader(header); err != nil {
			return err
		}
		if _, err := io.Copy(out, body); err != nil {
			return fmt.Errorf("copy %s: %w", header.Name, err)
		}
	}
	if !found {
		return fmt.Errorf("%s has no image %s", from, name)
	}
	return errors.Join(out.Close(), target.Sync())
}

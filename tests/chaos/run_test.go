//go:build chaos

package chaos

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/tests/guests"
	"github.com/virtkit/virtkit/tests/instance"
)

const (
	// recoveryTime bounds the time from a kill until all is well again.
	recoveryTime = 3 * time.Minute
	// bootTime bounds what is done before and after a kill: a boot, a shutdown.
	bootTime = 5 * time.Minute
	// request bounds a request to a cluster of which parts are dead.
	request = 10 * time.Second
)

// run is a cluster under test.
type run struct {
	*instance.Instance
	t        *testing.T
	ns       string
	nodes    []string
	consoles *consoles
	vms      []*vm
}

// vm is one of the VMs.
type vm struct {
	name string
	// disk is where its journal lies on this machine.
	disk string
	// pods are all launcher pods that it ever had.
	pods map[types.UID]bool
	// plugged says that volume plug is in it; halted that it is to be off.
	plugged, halted bool
	// qemu is the process that it was seen with last, since seen.
	qemu int
	seen time.Time
}

// plug is the name of the claim that is plugged into a VM.
func (g *vm) plug() string { return g.name + "-plug" }

// newRun makes the VMs on a cluster, and waits until all write.
func newRun(ctx context.Context, t *testing.T, i *instance.Instance) (*run, error) {
	status, err := i.Status(ctx)
	if err != nil {
		return nil, err
	}
	r := &run{Instance: i, t: t, ns: "chaos", nodes: []string{"node1", "node2"}}
	var inits []int
	for _, node := range r.nodes {
		pid := status.PID("init", node)
		if pid == 0 {
			return nil, fmt.Errorf("%s does not run", node)
		}
		inits = append(inits, pid)
	}
	r.consoles = newConsoles(inits)
	following, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); r.consoles.run(following) }()
	t.Cleanup(func() { stop(); <-done })

	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: r.ns, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}
	if err := i.Client.Create(ctx, namespace); err != nil {
		return nil, err
	}
	for _, name := range []string{"alpha", "beta", "gamma"}[:Guests] {
		g := &vm{name: name, pods: map[types.UID]bool{}}
		r.vms = append(r.vms, g)
		for claim, mode := range map[string]corev1.PersistentVolumeMode{
			g.name: corev1.PersistentVolumeFilesystem, g.plug(): corev1.PersistentVolumeBlock,
		} {
			if err := i.Client.Create(ctx, guests.NewClaim(r.ns, claim, mode)); err != nil {
				return nil, err
			}
		}
		if err := r.create(ctx, g); err != nil {
			return nil, err
		}
	}
	if err := r.wait(ctx, bootTime, r.well(nil)); err != nil {
		return nil, fmt.Errorf("the guests do not come up: %w", err)
	}
	for _, g := range r.vms {
		claim, volume := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}
		err := i.Client.Get(ctx, client.ObjectKey{Namespace: r.ns, Name: g.name}, claim)
		if err == nil {
			err = i.Client.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, volume)
		}
		if err == nil && volume.Spec.HostPath == nil {
			err = fmt.Errorf("volume %s is no directory", volume.Name)
		}
		if err != nil {
			return nil, err
		}
		g.disk = filepath.Join(volume.Spec.HostPath.Path, "disk.img")
	}
	return r, nil
}

// create makes a VM that writes its journal from boot on.
func (r *run) create(ctx context.Context, g *vm) error {
	var script bytes.Buffer
	z := gzip.NewWriter(&script) // user data has at most 2 KiB
	_, err := z.Write([]byte(journalScript))
	if err := errors.Join(err, z.Close()); err != nil {
		return err
	}
	userData := "#cloud-config\nwrite_files:\n- path: /usr/bin/journal\n  permissions: '0755'\n  " +
		"encoding: gz+b64\n  content: " +
		base64.StdEncoding.EncodeToString(script.Bytes()) +
		// A guest that shuts down takes its disks away last; the journal has to end before.
		"\n- path: /etc/rc.shutdown\n  permissions: '0755'\n  content: |\n    #!/bin/sh\n" +
		"    kill $(cat /run/journal.pid)\n" +
		"runcmd:\n- journal " + g.name + " DATA >/dev/null 2>&1 & echo $! >/run/journal.pid\n"
	made := guests.NewVM(r.ns, g.name, v1.RunStrategyAlways, guests.WithClaim(g.name), guests.WithUserData(userData))
	g.plugged, g.halted = false, false
	return r.Client.Create(ctx, made)
}

// wait waits until a condition gives "", and else returns what it said last.
func (r *run) wait(ctx context.Context, within time.Duration, condition func(context.Context) string) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	last := ""
	for {
		asking, done := context.WithTimeout(ctx, request)
		now := condition(asking)
		done()
		if now == "" {
			return nil
		}
		if ctx.Err() == nil || last == "" {
			last = now
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("not within %v: %s", within, last)
		}
	}
}

// pause waits for a time that the plan says.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// switchTo sets a VM's run strategy. While virt-api is down, nothing of it is admitted.
func (r *run) switchTo(ctx context.Context, g *vm, strategy v1.VirtualMachineRunStrategy) error {
	g.halted = strategy == v1.RunStrategyHalted
	return r.wait(ctx, recoveryTime, func(ctx context.Context) string {
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"runStrategy":%q}}`, strategy))
		object := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: r.ns, Name: g.name}}
		if err := r.Client.Patch(ctx, object, patch); err != nil {
			return err.Error()
		}
		return ""
	})
}

// volume plugs a VM's volume in or out, and changes the VM, too. A request that was lost over a kill is made again.
func (r *run) volume(ctx context.Context, g *vm, verb string) error {
	g.plugged = verb == "addvolume"
	return r.wait(ctx, recoveryTime, func(ctx context.Context) string {
		_, stderr, err := r.Virtctl(ctx, nil, "-n", r.ns, verb, g.name, "--volume-name="+g.plug())
		now := &v1.VirtualMachine{}
		if gone := r.Client.Get(ctx, client.ObjectKey{Namespace: r.ns, Name: g.name}, now); gone != nil {
			return gone.Error()
		}
		for _, v := range now.Spec.Template.Spec.Volumes {
			if v.Name == g.plug() && g.plugged {
				return ""
			}
			if v.Name == g.plug() {
				return fmt.Sprintf("%s: %v %s", verb, err, stderr)
			}
		}
		if g.plugged {
			return fmt.Sprintf("%s: %v %s", verb, err, stderr)
		}
		return ""
	})
}

// migrate begins a migration of a VM.
func (r *run) migrate(ctx context.Context, g *vm) error {
	return r.wait(ctx, recoveryTime, func(ctx context.Context) string {
		err := r.Client.Create(ctx, &v1.VirtualMachineInstanceMigration{
			ObjectMeta: metav1.ObjectMeta{Namespace: r.ns, Name: g.name},
			Spec:       v1.VirtualMachineInstanceMigrationSpec{VMIName: g.name},
		})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err.Error()
		}
		return ""
	})
}

// endMigration removes a migration that is over, and says whether the guest has moved.
func (r *run) endMigration(ctx context.Context, g *vm) (moved bool, err error) {
	err = r.wait(ctx, recoveryTime, func(ctx context.Context) string {
		m := &v1.VirtualMachineInstanceMigration{}
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: r.ns, Name: g.name}, m)
		if apierrors.IsNotFound(err) {
			return ""
		}
		moved = moved || m.Status.Phase == v1.MigrationSucceeded
		if err == nil {
			err = client.IgnoreNotFound(r.Client.Delete(ctx, m))
		}
		if err != nil {
			return err.Error()
		}
		return "the migration is there"
	})
	return moved, err
}

// rescue makes a VM anew that is stuck, so that the run can go on; its disk stays.
func (r *run) rescue(ctx context.Context) error {
	if err := r.Repair(ctx); err != nil {
		return err
	}
	for _, g := range r.vms {
		err := r.wait(ctx, bootTime, func(ctx context.Context) string {
			object := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: r.ns, Name: g.name}}
			if err := r.Client.Delete(ctx, object); !apierrors.IsNotFound(err) {
				return fmt.Sprintf("delete VM %s: %v", g.name, err)
			}
			pods, err := r.Kube.CoreV1().Pods(r.ns).List(ctx, metav1.ListOptions{})
			if err != nil {
				return err.Error()
			}
			for _, pod := range pods.Items {
				if pod.Annotations[v1.DomainAnnotation] == g.name {
					return "pod " + pod.Name + " is there"
				}
			}
			return ""
		})
		if err == nil {
			_, err = r.endMigration(ctx, g)
		}
		if err == nil {
			err = r.create(ctx, g)
		}
		if err != nil {
			return err
		}
	}
	return r.wait(ctx, bootTime, r.well(&fault{over: time.Now()}))
}

//go:build lab

package lab

import (
	"fmt"
	"path"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/waits"
)

// inside runs a shell command in the machine, and fails the test when that fails.
func inside(t *testing.T, format string, args ...any) string {
	t.Helper()
	out, err := theMachine.Output(t.Context(), fmt.Sprintf(format, args...))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// virtctl runs virtctl here; what does not exit with 0 fails the test.
func virtctl(t *testing.T, args ...string) string {
	t.Helper()
	stdout, stderr, err := theCluster.Virtctl(t.Context(), nil, args...)
	if err != nil {
		t.Fatalf("virtctl %s: %v\n%s%s", strings.Join(args, " "), err, stdout, stderr)
	}
	return strings.TrimSpace(stdout)
}

// timeout is a flag: that long on a usual machine.
func timeout(usual time.Duration) string { return "--timeout=" + waits.Scaled(usual).String() }

// eventually waits until the condition gives "", and else fails with what it said last.
func eventually(t *testing.T, usual time.Duration, what string, condition func() string) {
	t.Helper()
	deadline := time.Now().Add(waits.Scaled(usual))
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		last := condition()
		if last == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %s", what, waits.Scaled(usual), last)
		}
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatalf("%s: %v: %s", what, t.Context().Err(), last)
		}
	}
}

// instanceOf is a VM's instance.
func instanceOf(t *testing.T, vm string) *v1.VirtualMachineInstance {
	t.Helper()
	vmi := &v1.VirtualMachineInstance{}
	key := client.ObjectKey{Namespace: "default", Name: vm}
	if err := theCluster.Client.Get(t.Context(), key, vmi); err != nil {
		t.Fatalf("get vmi %s: %v", vm, err)
	}
	return vmi
}

// process is QEMU as the machine sees it.
type process struct {
	pid int
	// group is its control group's directory.
	group string
	// args are its command line.
	args []string
}

// qemu finds the QEMU of a VM.
func qemu(t *testing.T, vm string) process {
	t.Helper()
	vmi := instanceOf(t, vm)
	for uid, node := range vmi.Status.ActivePods {
		if node != vmi.Status.NodeName {
			continue
		}
		// Two fields: the process and its group.
		found := strings.Fields(inside(t, `for f in $(grep -l pod%s /proc/[0-9]*/cgroup); do d=${f%%/cgroup}
			case $(readlink $d/exe) in */qemu-system-*) echo ${d#/proc/} $(sed -n s/^0:://p $f);; esac; done`, uid))
		if len(found) != 2 {
			t.Fatalf("the QEMU of %s in pod %s: %q", vm, uid, found)
		}
		p := process{group: path.Join("/sys/fs/cgroup", found[1])}
		if _, err := fmt.Sscan(found[0], &p.pid); err != nil {
			t.Fatal(err)
		}
		p.args = strings.Split(strings.TrimRight(inside(t, `tr '\0' '\n' </proc/%d/cmdline`, p.pid), "\n"), "\n")
		return p
	}
	t.Fatalf("%s has no pod on %q: %v", vm, vmi.Status.NodeName, vmi.Status.ActivePods)
	return process{}
}

// arg is what follows an option of QEMU's, "" when it is not there.
func (p process) arg(option string) string {
	for i, a := range p.args {
		if a == option && i+1 < len(p.args) {
			return p.args[i+1]
		}
	}
	return ""
}

// nodes lists the cluster's.
func nodes(t *testing.T) []corev1.Node {
	t.Helper()
	list, err := theCluster.Kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// labelled lists what follows a prefix in the labels of a node.
func labelled(node *corev1.Node, prefix string) []string {
	var out []string
	for key := range node.Labels {
		if rest, ok := strings.CutPrefix(key, prefix); ok {
			out = append(out, rest)
		}
	}
	return out
}

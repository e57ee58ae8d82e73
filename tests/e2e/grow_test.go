//go:build e2e

package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/tests/instance"
)

// A running guest gets sockets and memory: in its pod while its node has room, and by moving when it has none. It keeps
// what it got, and gives memory back. Nothing runs beside it: a node is filled up.
func TestGrow(t *testing.T) {
	c := theCluster
	ns := c.namespace(t, "restricted")
	g := c.create(t, newVM(ns, "grow", v1.RunStrategyAlways, func(vm *v1.VirtualMachine) {
		domain := &vm.Spec.Template.Spec.Domain
		domain.CPU = &v1.CPU{Sockets: 1, MaxSockets: 4}
		domain.Memory = &v1.Memory{Guest: ptr(resource.MustParse("256Mi")), MaxGuest: ptr(resource.MustParse("1Gi"))}
	}))
	g.waitLogin(t)
	con := g.openConsole(t, "")
	con.login(t, "root", "tiny")
	atBoot := con.memory(t)
	first := g.pod(t)
	resources := func(pod corev1.Pod) (cpu, memory int64) {
		requests := pod.Spec.Containers[0].Resources.Requests
		return requests.Cpu().MilliValue(), requests.Memory().Value() >> 20
	}
	cpuBefore, memoryBefore := resources(first)

	g.size(t, 2, "512Mi")
	g.waitSize(t, con, 2, 512, atBoot+256)
	grown := g.pod(t)
	if cpu, memory := resources(grown); grown.UID != first.UID || cpu != 2*cpuBefore || memory < memoryBefore+256 {
		t.Errorf("pod %s has %d mCPU and %d MiB; %s had %d and %d", grown.Name, cpu, memory, first.Name, cpuBefore,
			memoryBefore)
	}

	fill := c.fill(t, ns, grown.Spec.NodeName)
	g.size(t, 3, "768Mi")
	eventually(t, bootTime, "the guest moves to where there is room", func() string {
		if node := g.vmi(t).Status.NodeName; node == grown.Spec.NodeName {
			return fmt.Sprintf("on %s: %+v", node, g.vmi(t).Status.Conditions)
		}
		return ""
	})
	con = g.openConsole(t, "")
	con.send(t, "\n")
	g.waitSize(t, con, 3, 768, atBoot+512)
	if err := c.Client.Delete(t.Context(), fill, client.GracePeriodSeconds(0)); err != nil {
		t.Error(err)
	}

	g.size(t, 3, "384Mi")
	g.waitSize(t, con, 3, 384, 0)
	eventually(t, 30*time.Second, "the pod gives memory back", func() string {
		for _, pod := range g.pods(t) {
			if _, memory := resources(pod); pod.Status.Phase == corev1.PodRunning && memory > memoryBefore+200 {
				return fmt.Sprintf("%d MiB, was %d at first", memory, memoryBefore)
			}
		}
		return ""
	})

	g.size(t, 1, "384Mi")
	eventually(t, 30*time.Second, "a restart is required", func() string {
		for _, condition := range g.vm(t).Status.Conditions {
			if condition.Type == v1.VirtualMachineRestartRequired &&
				strings.Contains(condition.Message, "keeps its 3 sockets") {
				return ""
			}
		}
		return fmt.Sprintf("%+v", g.vm(t).Status.Conditions)
	})
}

// size changes the VM.
func (g *guest) size(t *testing.T, sockets uint32, memory string) {
	t.Helper()
	vm := g.vm(t)
	before := vm.DeepCopy()
	vm.Spec.Template.Spec.Domain.CPU.Sockets = sockets
	vm.Spec.Template.Spec.Domain.Memory.Guest = ptr(resource.MustParse(memory))
	if err := g.Client.Patch(t.Context(), vm, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

// waitSize waits until the instance says, and the guest sees, so many sockets and MiB. atLeast is what the guest
// counts, MiB.
func (g *guest) waitSize(t *testing.T, con *console, sockets uint32, mebibytes int64, atLeast int) {
	t.Helper()
	eventually(t, bootTime, fmt.Sprintf("the guest has %d sockets and %d MiB", sockets, mebibytes), func() string {
		vmi := g.vmi(t)
		s := vmi.Status
		if s.CurrentCPUTopology.Sockets != sockets || s.Memory.GuestCurrent.Value()>>20 != mebibytes {
			return fmt.Sprintf("%+v, %s MiB, %+v", s.CurrentCPUTopology, s.Memory.GuestCurrent, s.Conditions)
		}
		for _, condition := range s.Conditions {
			if condition.Type == v1.VirtualMachineInstanceVCPUChange ||
				condition.Type == v1.VirtualMachineInstanceMemoryChange {
				return fmt.Sprintf("%+v", condition)
			}
		}
		return ""
	})
	eventually(t, 30*time.Second, "the guest uses it", func() string {
		if got := con.run(t, "nproc"); got != strconv.Itoa(int(sockets)) {
			return got + " CPUs"
		}
		// What Linux keeps for its own account of memory comes out of it.
		if got := con.memory(t); got < atLeast-32 {
			return fmt.Sprintf("%d MiB", got)
		}
		return ""
	})
}

// memory is what the guest has in all, MiB.
func (c *console) memory(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(c.run(t, `awk '/^MemTotal/ { print int($2 / 1024) }' /proc/meminfo`))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// fill leaves no memory to request on a node but a little.
func (c *cluster) fill(t *testing.T, ns, node string) *corev1.Pod {
	t.Helper()
	n, err := c.Kube.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pods, err := c.Kube.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		t.Fatal(err)
	}
	left := n.Status.Allocatable.Memory().Value() - 64<<20
	for _, pod := range pods.Items {
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		for _, container := range pod.Spec.Containers {
			left -= container.Resources.Requests.Memory().Value()
		}
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "fill", Namespace: ns},
		Spec: corev1.PodSpec{
			NodeName:                      node,
			TerminationGracePeriodSeconds: ptr(int64(0)),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: ptr(true), RunAsUser: ptr(int64(107)),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "fill", Image: instance.Launcher(), ImagePullPolicy: corev1.PullNever,
				Command: []string{"sleep", "3600"},
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{
						corev1.ResourceMemory: *resource.NewQuantity(left, resource.BinarySI),
					},
				},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: ptr(false),
					Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
	if err := c.Client.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/tests/instance"
)

// cluster is the instance of virt-local that all tests of this package share; each test has a namespace of
// its own in it.
type cluster struct {
	*instance.Instance
}

var theCluster *cluster

func TestMain(m *testing.M) {
	code, err := runTests(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

// startTime is how long it may take until an instance is up, with virtkit on it.
const startTime = 10 * time.Minute

func runTests(m *testing.M) (code int, err error) {
	if only, err := selectOwn(); err != nil {
		return 1, err
	} else if only {
		return m.Run(), nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	var i *instance.Instance
	if name := os.Getenv("VIRTKIT_E2E_CLUSTER"); name != "" {
		i, err = instance.Attach(name)
	} else {
		i, err = instance.Start(ctx, "e2e",
			upFlags(os.Getenv("VIRTKIT_E2E_STORAGE"), os.Getenv("VIRTKIT_E2E_FAMILY"))...)
	}
	if err != nil {
		return 1, err
	}
	defer func() {
		if derr := takeDown(i); derr != nil {
			code, err = 1, errors.Join(err, derr)
		}
	}()
	if err := i.Install(ctx); err != nil {
		return 1, err
	}
	theCluster = &cluster{i}
	code = m.Run()
	// The time of ctx is for the start.
	ending, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	if err := theCluster.endShared(ending); err != nil || code != 0 {
		return max(code, 1), err
	}
	return 0, checkRights(i)
}

// skipInShort leaves out of runs with -short, such as CI's, which has 90 minutes for everything, what takes a minute or
// more and shows in detail what a test that is never left out shows once.
func skipInShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("not with -short; make test-long has it")
	}
}

// takeDown takes an instance down, unless it is to be kept.
func takeDown(i *instance.Instance) error {
	if os.Getenv("VIRTKIT_E2E_KEEP") == "" {
		return i.Down()
	}
	fmt.Fprintf(os.Stderr, "e2e: instance %s is kept, kubeconfig %s; end it with: bin/virt-local down --name %[1]s\n",
		i.Name, i.Kubeconfig)
	return nil
}

// namespace makes a namespace that enforces the given Pod Security level and goes away with the test.
func (c *cluster) namespace(t *testing.T, level string) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "e2e-",
		Labels:       map[string]string{"pod-security.kubernetes.io/enforce": level},
	}}
	ns, err := c.Kube.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create namespace: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if t.Failed() {
			c.describe(ctx, t, ns.Name)
		}
		if err := c.Kube.CoreV1().Namespaces().Delete(ctx, ns.Name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("delete namespace %s: %v", ns.Name, err)
		}
	})
	return ns.Name
}

// describe logs what a person would look at after a failure: first the few lines that most often name the cause, which
// dev/failed.awk repeats, then everything.
func (c *cluster) describe(ctx context.Context, t *testing.T, ns string) {
	c.suspects(ctx, t, ns)
	t.Logf("namespace %s as it was left:", ns) // dev/failed.awk leaves out what follows
	vmis := &v1.VirtualMachineInstanceList{}
	if err := c.Client.List(ctx, vmis, client.InNamespace(ns)); err == nil {
		for _, vmi := range vmis.Items {
			t.Logf("vmi %s: phase %q node %q conditions %+v", vmi.Name, vmi.Status.Phase, vmi.Status.NodeName,
				vmi.Status.Conditions)
			if serial, _, err := c.Virtctl(ctx, nil, "-n", ns, "logs", vmi.Name, "--tail", "40"); err == nil {
				t.Logf("serial port of %s:\n%s", vmi.Name, serial)
			}
		}
	}
	pods, err := c.Kube.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
	if err == nil {
		for _, pod := range pods.Items {
			t.Logf("pod %s: phase %s on %q: %+v", pod.Name, pod.Status.Phase, pod.Spec.NodeName,
				pod.Status.ContainerStatuses)
			if log, err := c.Kube.CoreV1().Pods(ns).GetLogs(pod.Name,
				&corev1.PodLogOptions{TailLines: ptr(int64(40))}).DoRaw(ctx); err == nil {
				t.Logf("log of %s:\n%s", pod.Name, log)
			}
		}
	}
	events, err := c.Kube.CoreV1().Events(ns).List(ctx, metav1.ListOptions{})
	if err == nil {
		for _, e := range events.Items {
			t.Logf("event %s %s/%s %s: %s", e.LastTimestamp.Format(time.TimeOnly), e.InvolvedObject.Kind,
				e.InvolvedObject.Name, e.Reason, e.Message)
		}
	}
}

// suspects logs, a line each, the pods of a namespace that do not run, the VMIs that are not ready, and the last
// warnings, with those of QEMU's race, which dev/foreign.awk looks for.
func (c *cluster) suspects(ctx context.Context, t *testing.T, ns string) {
	vmis := &v1.VirtualMachineInstanceList{}
	if err := c.Client.List(ctx, vmis, client.InNamespace(ns)); err != nil {
		t.Logf("list VMIs: %v", err)
	}
	for _, vmi := range vmis.Items {
		for _, cond := range vmi.Status.Conditions {
			if cond.Type == v1.VirtualMachineInstanceReady && cond.Status != corev1.ConditionTrue {
				t.Logf("vmi %s: %s on %q: %s: %s", vmi.Name, vmi.Status.Phase, vmi.Status.NodeName, cond.Reason,
					cond.Message)
			}
		}
	}
	pods, err := c.Kube.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Logf("list pods: %v", err)
		return
	}
	for _, pod := range pods.Items {
		for _, cond := range pod.Status.Conditions {
			if cond.Type == corev1.PodScheduled && cond.Status != corev1.ConditionTrue {
				t.Logf("pod %s: %s: %s", pod.Name, cond.Reason, cond.Message)
			}
		}
		for _, container := range pod.Status.ContainerStatuses {
			if container.State.Waiting != nil || container.State.Terminated != nil {
				t.Logf("pod %s: %s on %q: container %s: %s", pod.Name, pod.Status.Phase, pod.Spec.NodeName,
					container.Name, container.State.String())
			}
		}
	}
	events, err := c.Kube.CoreV1().Events(ns).List(ctx, metav1.ListOptions{FieldSelector: "type=Warning"})
	if err != nil {
		t.Logf("list events: %v", err)
		return
	}
	for i, e := range events.Items {
		if i < len(events.Items)-5 && !tcgAssertion.MatchString(e.Message) {
			continue
		}
		t.Logf("event %s %s/%s %s: %s", e.LastTimestamp.Format(time.TimeOnly), e.InvolvedObject.Kind,
			e.InvolvedObject.Name, e.Reason, e.Message)
	}
}

// virtctl runs virtctl against the cluster and returns its standard output; a non-zero exit fails the test.
func (c *cluster) virtctl(t *testing.T, stdin io.Reader, args ...string) string {
	t.Helper()
	stdout, stderr, err := c.Virtctl(t.Context(), stdin, args...)
	if err != nil {
		t.Fatalf("virtctl %s: %v\n%s%s", strings.Join(args, " "), err, stdout, stderr)
	}
	return stdout
}

// processes lists the processes of a pod.
func processes(t *testing.T, podUID string) []instance.Process {
	t.Helper()
	found, err := instance.Processes(podUID)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// kill sends SIGKILL to the processes of a pod that run the given executable, and fails when there is none.
func kill(t *testing.T, podUID, command string) {
	t.Helper()
	killed := 0
	for _, p := range processes(t, podUID) {
		if p.Command != command {
			continue
		}
		if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatalf("kill %s (%d): %v", command, p.PID, err)
		}
		killed++
	}
	if killed == 0 {
		t.Fatalf("no process %s in pod %s; there are %v", command, podUID, processes(t, podUID))
	}
}

// componentPods returns the pods of one of virtkit's components.
func (c *cluster) componentPods(t *testing.T, component string) []corev1.Pod {
	t.Helper()
	pods, err := c.Kube.CoreV1().Pods(names.Namespace).List(t.Context(),
		metav1.ListOptions{LabelSelector: names.LabelComponent + "=" + component})
	if err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) == 0 {
		t.Fatalf("no pods of %s", component)
	}
	return pods.Items
}

func ptr[T any](v T) *T { return &v }

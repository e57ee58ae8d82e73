//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/names"
)

// cluster is the instance of virt-local that all tests of this package share; each test has a namespace of
// its own in it.
type cluster struct {
	name       string
	root       string // the repository
	kubeconfig string
	config     *rest.Config
	kube       kubernetes.Interface
	client     client.Client
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

func runTests(m *testing.M) (code int, err error) {
	root, err := repositoryRoot()
	if err != nil {
		return 1, err
	}
	c := &cluster{name: os.Getenv("VIRTKIT_E2E_CLUSTER"), root: root}
	own := c.name == ""
	dir, err := os.MkdirTemp("", "virtkit-e2e-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	if own {
		c.name = "e2e-" + rand.String(5)
		c.kubeconfig = filepath.Join(dir, "kubeconfig")
		if err := c.up(); err != nil {
			return 1, errors.Join(err, c.down())
		}
		defer func() {
			if os.Getenv("VIRTKIT_E2E_KEEP") != "" {
				fmt.Fprintf(os.Stderr, "e2e: instance %s is kept; end it with: bin/virt-local down --name %s\n", c.name, c.name)
				return
			}
			if derr := c.down(); derr != nil {
				code, err = 1, errors.Join(err, derr)
			}
		}()
	} else {
		c.kubeconfig = clientcmd.RecommendedHomeFile
		if k := os.Getenv("KUBECONFIG"); k != "" {
			c.kubeconfig = k
		}
	}
	if err := c.connect(); err != nil {
		return 1, err
	}
	if err := c.install(); err != nil {
		return 1, err
	}
	theCluster = c
	return m.Run(), nil
}

func repositoryRoot() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

func (c *cluster) bin(name string) string { return filepath.Join(c.root, "bin", name) }

func (c *cluster) up() error {
	args := []string{"up", "--name", c.name, "--nodes", "2", "--kubeconfig", c.kubeconfig}
	for _, image := range []string{"virt-server", "virt-launcher", "tiny-disk"} {
		args = append(args, "--image", filepath.Join(c.root, "bin", "images", image+".tar"))
	}
	return c.run(c.bin("virt-local"), args...)
}

func (c *cluster) down() error {
	return c.run(c.bin("virt-local"), "down", "--name", c.name, "--kubeconfig", c.kubeconfig)
}

func (c *cluster) install() error {
	return c.run(c.bin("virtctl"), "--kubeconfig", c.kubeconfig, "--context", c.name, "install", "--wait", "--timeout", "3m")
}

func (c *cluster) run(name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", filepath.Base(name), args[0], err)
	}
	return nil
}

func (c *cluster) connect() error {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: c.kubeconfig},
		&clientcmd.ConfigOverrides{CurrentContext: c.name},
	).ClientConfig()
	if err != nil {
		return fmt.Errorf("load %s: %w", c.kubeconfig, err)
	}
	config.QPS, config.Burst = 100, 200
	c.config = config
	if c.kube, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1.AddToScheme(scheme)); err != nil {
		return err
	}
	c.client, err = client.New(config, client.Options{Scheme: scheme})
	return err
}

// namespace makes a namespace that enforces the given Pod Security level and goes away with the test.
func (c *cluster) namespace(t *testing.T, level string) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "e2e-",
		Labels:       map[string]string{"pod-security.kubernetes.io/enforce": level},
	}}
	ns, err := c.kube.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create namespace: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if t.Failed() {
			c.describe(ctx, t, ns.Name)
		}
		if err := c.kube.CoreV1().Namespaces().Delete(ctx, ns.Name, metav1.DeleteOptions{}); err != nil {
			t.Errorf("delete namespace %s: %v", ns.Name, err)
		}
	})
	return ns.Name
}

// describe logs what a person would look at after a failure.
func (c *cluster) describe(ctx context.Context, t *testing.T, ns string) {
	vmis := &v1.VirtualMachineInstanceList{}
	if err := c.client.List(ctx, vmis, client.InNamespace(ns)); err == nil {
		for _, vmi := range vmis.Items {
			t.Logf("vmi %s: phase %q node %q conditions %+v", vmi.Name, vmi.Status.Phase, vmi.Status.NodeName, vmi.Status.Conditions)
		}
	}
	pods, err := c.kube.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
	if err == nil {
		for _, pod := range pods.Items {
			t.Logf("pod %s: phase %s on %q: %+v", pod.Name, pod.Status.Phase, pod.Spec.NodeName, pod.Status.ContainerStatuses)
			if log, err := c.kube.CoreV1().Pods(ns).GetLogs(pod.Name, &corev1.PodLogOptions{TailLines: ptr(int64(40))}).DoRaw(ctx); err == nil {
				t.Logf("log of %s:\n%s", pod.Name, log)
			}
		}
	}
	events, err := c.kube.CoreV1().Events(ns).List(ctx, metav1.ListOptions{})
	if err == nil {
		for _, e := range events.Items {
			t.Logf("event %s %s/%s %s: %s", e.LastTimestamp.Format(time.TimeOnly), e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Message)
		}
	}
}

// virtctl runs virtctl against the cluster and returns its standard output; a non-zero exit fails the test.
func (c *cluster) virtctl(t *testing.T, stdin io.Reader, args ...string) string {
	t.Helper()
	stdout, stderr, err := c.virtctlResult(t, stdin, args...)
	if err != nil {
		t.Fatalf("virtctl %s: %v\n%s%s", strings.Join(args, " "), err, stdout, stderr)
	}
	return stdout
}

func (c *cluster) virtctlResult(t *testing.T, stdin io.Reader, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(t.Context(), c.bin("virtctl"), append([]string{"--kubeconfig", c.kubeconfig, "--context", c.name}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &errOut
	err = cmd.Run()
	return out.String(), errOut.String(), err
}

// process is one process in a pod, found by the pod's UID in its cgroup path.
type process struct {
	pid     int
	command string // the executable's base name
}

// processes lists the processes of a pod, on whichever node of this machine it runs.
func processes(t *testing.T, podUID string) []process {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var found []process
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		cgroup, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cgroup"))
		if err != nil || !bytes.Contains(cgroup, []byte("pod"+podUID)) {
			continue
		}
		exe, err := os.Readlink(filepath.Join("/proc", entry.Name(), "exe"))
		if err != nil {
			continue
		}
		found = append(found, process{pid, filepath.Base(exe)})
	}
	return found
}

// kill sends SIGKILL to the processes of a pod that run the given executable, and fails when there is none.
func kill(t *testing.T, podUID, command string) {
	t.Helper()
	killed := 0
	for _, p := range processes(t, podUID) {
		if p.command != command {
			continue
		}
		if err := syscall.Kill(p.pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatalf("kill %s (%d): %v", command, p.pid, err)
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
	pods, err := c.kube.CoreV1().Pods(names.Namespace).List(t.Context(), metav1.ListOptions{LabelSelector: names.LabelComponent + "=" + component})
	if err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) == 0 {
		t.Fatalf("no pods of %s", component)
	}
	return pods.Items
}

func ptr[T any](v T) *T { return &v }

//go:build e2e

// The end-to-end test of virt-local: a cluster of two nodes comes up, works, loses a node, is repaired and goes,
// and leaves the machine as it was. It needs root and bin/virt-local; run it with
//
//	go test -tags e2e -v .
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/kubectl/pkg/scheme"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/cluster"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/hostnet"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/instance"
)

// instanceName is this run's own, so that the test can run twice on one machine.
var instanceName = fmt.Sprintf("virt-local-e2e-%d", os.Getpid())

// machine is one run of the test: a binary, an instance and its client.
type machine struct {
	*testing.T
	binary     string
	kubeconfig string
	client     kubernetes.Interface
}

func (m *machine) run(args ...string) (stdout string, err error) {
	m.Helper()
	var out, errOut bytes.Buffer
	cmd := exec.Command(m.binary, append(args, "--name", instanceName)...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	begin := time.Now()
	if err = cmd.Run(); err != nil {
		err = fmt.Errorf("virt-local %s: %w\n%s", strings.Join(args, " "), err, errOut.String())
	}
	m.Logf("virt-local %s: %.1f s", strings.Join(args, " "), time.Since(begin).Seconds())
	return out.String(), err
}

func (m *machine) must(args ...string) string {
	m.Helper()
	out, err := m.run(args...)
	if err != nil {
		m.Fatal(err)
	}
	return out
}

func (m *machine) status() cluster.Status {
	m.Helper()
	out, _ := m.run("status", "-o", "json") // its exit code says whether all is well; so does the status
	var s cluster.Status
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		m.Fatalf("status: %v: %q", err, out)
	}
	return s
}

// await waits until check is true.
func (m *machine) await(what string, timeout time.Duration, check func(ctx context.Context) bool) {
	m.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	begin := time.Now()
	for !check(ctx) {
		select {
		case <-ctx.Done():
			m.Fatalf("not within %v: %s", timeout, what)
		case <-time.After(100 * time.Millisecond):
		}
	}
	m.Logf("%s: %.1f s", what, time.Since(begin).Seconds())
}

// traces are what `down` must not leave: everything on the machine that may bear an instance's marks.
func traces(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	command := func(name string, args ...string) string {
		out, err := exec.Command(name, args...).Output()
		if err != nil {
			t.Fatalf("%s %v: %v", name, args, err)
		}
		return string(out)
	}
	lines := func(s string) []string {
		l := strings.Split(strings.TrimSpace(s), "\n")
		for i := range l {
			l[i] = strings.TrimSpace(l[i])
		}
		slices.Sort(l)
		return l
	}
	// Interface indexes and timers change by themselves.
	found["links"] = lines(regexp.MustCompile(`(?m)^\d+: (\S+?)[@:].*$`).ReplaceAllString(command("ip", "-o", "link"),
		"$1"))
	found["addresses"] = lines(regexp.MustCompile(`(?m)^\d+: |\\.*$`).ReplaceAllString(command("ip", "-o",
		"-4", "addr"), ""))
	found["routes"] = append(lines(command("ip", "route")), lines(command("ip", "-6", "route"))...)
	found["firewall"] = lines(command("nft", "list", "ruleset"))
	found["loops"] = lines(command("losetup", "-a"))
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	found["mounts"] = lines(string(mounts))
	cgroups, err := filepath.Glob("/sys/fs/cgroup/virt-local*")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("/sys/fs/cgroup/*/virt-local*")
	if err != nil {
		t.Fatal(err)
	}
	found["cgroups"] = append(cgroups, more...)
	for _, setting := range []string{
		"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding", "fs/inotify/max_user_instances", "kernel/panic_on_oops",
		"vm/overcommit_memory",
	} {
		b, err := os.ReadFile("/proc/sys/" + setting)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		found["settings"] = append(found["settings"], setting+"="+strings.TrimSpace(string(b)))
	}
	for _, path := range []string{
		"/var/lib/kubelet", "/var/lib/containerd", "/run/containerd", "/etc/cni/net.d", "/var/lib/cni",
		"/run/virt-local", "/var/lib/virt-local",
	} {
		if _, err := os.Stat(path); err == nil {
			found["files"] = append(found["files"], path)
		}
	}
	processes, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		if b, err := os.ReadFile(p); err == nil && bytes.Contains(b, []byte("/"+instanceName)) {
			found["processes"] = append(found["processes"], string(bytes.ReplaceAll(b, []byte{0}, []byte(" "))))
		}
	}
	return found
}

// withoutOthers drops what belongs to another instance that runs on the same machine, or to images that are built on
// it, which may come and go.
func withoutOthers(found map[string][]string, ours ...string) map[string][]string {
	isOurs := func(s string) bool {
		return slices.ContainsFunc(ours, func(mark string) bool { return strings.Contains(s, mark) })
	}
	others := regexp.MustCompile(`vlocal\d+|virt-local[-/]|fd76:6c6f:63|10\.99\.|10\.(12[89]|1[3-9]\d|2\d\d)\.|/mmdebstrap\.`)
	for kind, all := range found {
		if kind == "settings" || kind == "files" {
			continue
		}
		found[kind] = slices.DeleteFunc(all, func(s string) bool {
			// Most lines of the firewall could be anybody's, and so could the loop devices of kubelets.
			return !isOurs(s) && (kind == "firewall" || kind == "loops" || others.MatchString(s))
		})
	}
	return found
}

// newMachine returns a machine without the instance, which dumps and removes it when the test ends.
func newMachine(t *testing.T) *machine {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test must run as root")
	}
	binary, err := filepath.Abs("../../bin/virt-local")
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{T: t, binary: binary, kubeconfig: filepath.Join(t.TempDir(), "config")}
	m.must("down")
	t.Cleanup(func() {
		if t.Failed() && m.client != nil {
			m.dump()
		}
		if _, err := m.run("down"); err != nil {
			t.Error(err)
		}
	})
	return m
}

// connect makes the client of a cluster that is up.
func (m *machine) connect() {
	m.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", m.kubeconfig)
	if err != nil {
		m.Fatal(err)
	}
	if m.client, err = kubernetes.NewForConfig(config); err != nil {
		m.Fatal(err)
	}
}

func TestCluster(t *testing.T) {
	m := newMachine(t)
	alone, before := isAlone(), traces(t)
	m.must("up", "--ip-family", "auto", "--kubeconfig", m.kubeconfig, "--node-monitor-grace-period", "8s",
		"--image", busybox(t))
	m.connect()
	up := m.status()
	if !up.Ready || len(up.Nodes) != 2 || len(up.Components) != 12 {
		t.Fatalf("status after up: %+v", up)
	}
	m.second(up)
	m.pods("16Mi")
	want := instance.Dual
	if err := hostnet.IPv6(); err != nil {
		t.Logf("with IPv4 alone, for this machine cannot have IPv6: %v", err)
		want = instance.IPv4
	}
	m.families(up, want)
	m.loseNode(up)
	m.cutNode()
	m.loseControlPlane()

	if t.Failed() {
		return
	}
	m.must("down")
	m.client = nil
	if _, err := os.Stat(m.kubeconfig); !os.IsNotExist(err) {
		t.Errorf("the kubeconfig that up made is left: %v", err)
	}
	m.leftNothing(up, before, alone)
}

// isAlone reports whether no instance runs. Else what all share stays, and the others may change their own.
func isAlone() bool {
	_, err := os.Stat("/run/virt-local")
	return err != nil
}

// leftNothing compares the machine after down with what it was before.
func (m *machine) leftNothing(up cluster.Status, before map[string][]string, alone bool) {
	m.Helper()
	after := traces(m.T)
	if !alone {
		ours := []string{"vlocal" + slotOf(up), instanceName}
		before, after = withoutOthers(before, ours...), withoutOthers(after, ours...)
	}
	if diff := gocmp.Diff(before, after); diff != "" {
		m.Errorf("down leaves traces (-before +after):\n%s", diff)
	}
}

// slotOf returns the number of the instance's slot, by where its API server is.
func slotOf(up cluster.Status) string {
	if slot, ok := strings.CutPrefix(up.Server, "https://10.99."); ok {
		return strings.TrimSuffix(slot, ".1:6443")
	}
	slot := strings.TrimSuffix(strings.TrimPrefix(up.Server, "https://[fd76:6c6f:63"), "::1]:6443")
	return cmp.Or(strings.TrimLeft(slot, "0"), "0")
}

// second checks that up on a whole cluster does nothing, and that it knows its images.
func (m *machine) second(first cluster.Status) {
	m.must("up", "--image", busybox(m.T))
	again := m.status()
	for i, p := range again.Components {
		if p.PID != first.Components[i].PID {
			m.Errorf("a second up restarted %s of %s", p.Name, p.Node)
		}
	}
}

// pods runs a pod on each node, as unprivileged as a launcher, with volumes that both share: one with a file system of
// the given size, and a block volume.
func (m *machine) pods(size string) {
	ctx := context.Background()
	for mode, size := range map[corev1.PersistentVolumeMode]string{
		corev1.PersistentVolumeFilesystem: size,
		corev1.PersistentVolumeBlock:      "16Mi",
	} {
		_, err := m.client.CoreV1().PersistentVolumeClaims("default").Create(ctx, &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: strings.ToLower(string(mode))},
			Spec: corev1.PersistentVolumeClaimSpec{
				VolumeMode: &mode, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
				Resources: corev1.VolumeResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
				},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			m.Fatal(err)
		}
	}
	_, err := m.client.CoreV1().Services("default").Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "pods"},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "pod"},
			Ports:    []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		m.Fatal(err)
	}
	for _, node := range []string{"node1", "node2"} {
		if _, err := m.client.CoreV1().Pods("default").Create(ctx, pod(node), metav1.CreateOptions{}); err != nil {
			m.Fatal(err)
		}
	}
	m.await("a pod on each node is Ready", time.Minute, func(ctx context.Context) bool { return m.podsReady(ctx) == 2 })

	for _, node := range []string{"node1", "node2"} {
		// The service's name, through DNS and kube-proxy, from a pod to a pod of either node, itself among them.
		seen := map[string]bool{}
		m.await("pod on "+node+" reaches both pods by the Service's name", 20*time.Second, func(context.Context) bool {
			out, err := m.exec("pod-"+node,
				"a=$(nslookup pods.default.svc.cluster.local | awk '/^Address/{a=$NF}END{print a}'); "+
					"printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 2 $a 80 | tail -1")
			if err == nil {
				seen[strings.TrimSpace(out)] = true
			}
			return seen["node1"] && seen["node2"]
		})
		if out, err := m.exec("pod-"+node,
			"nc -w 2 $KUBERNETES_SERVICE_HOST 443 </dev/null && cat /data/node1 /data/node2"); err != nil ||
			out != "node1\nnode2\n" {
			m.Errorf("shared volume and API server from %s: %q, %v", node, out, err)
		}
	}
	for _, node := range []string{"node1", "node2"} {
		if _, err := m.exec("pod-"+node, "test -b /dev/block"); err != nil {
			m.Errorf("no block device on %s: %v", node, err)
		}
	}
	logs := m.client.CoreV1().Pods("default").GetLogs("pod-node2", &corev1.PodLogOptions{})
	if out, err := logs.DoRaw(context.Background()); err != nil || string(out) != "ready node2\n" {
		m.Errorf("logs: %q, %v", out, err)
	}
	if _, err := os.Stat("/var/lib/kubelet"); err == nil {
		m.Error("the kubelet's files are on the machine itself")
	}
}

func (m *machine) exec(pod, script string) (string, error) {
	m.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", m.kubeconfig)
	if err != nil {
		return "", err
	}
	request := m.client.CoreV1().RESTClient().Post().Namespace("default").Resource("pods").Name(pod).
		SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: []string{"sh", "-c", script}, Stdout: true},
			scheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, request.URL().String())
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var out bytes.Buffer
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out})
	return out.String(), err
}

func (m *machine) podsReady(ctx context.Context) int {
	pods, err := m.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0
	}
	ready := 0
	for _, p := range pods.Items {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				ready++
			}
		}
	}
	return ready
}

func pod(node string) *corev1.Pod {
	user, yes, no, zero := int64(107), true, false, int64(0)
	claim := func(name string) corev1.VolumeSource {
		return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pod-" + node, Labels: map[string]string{"app": "pod"}},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{corev1.LabelHostname: node}, TerminationGracePeriodSeconds: &zero,
			AutomountServiceAccountToken: &no,
			// A node that is lost and repaired shall find its pod again.
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			SecurityContext: &corev1.PodSecurityContext{
				RunAsUser: &user, RunAsGroup: &user, FSGroup: &user, RunAsNonRoot: &yes,
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "c", Image: busyboxImage, ImagePullPolicy: corev1.PullIfNotPresent,
				Command: []string{
					"sh",
					"-c",
					fmt.Sprintf("mkdir -p /tmp/w && echo %[1]s | tee /tmp/w/index.html > /data/%[1]s && echo "+
						"ready %[1]s && exec httpd -f -p 8080 -h /tmp/w", node),
				},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: &no, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
				ReadinessProbe: &corev1.Probe{
					ProbeHandler: corev1.ProbeHandler{
						HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(8080), Path: "/"},
					},
					PeriodSeconds: 1,
				},
				VolumeMounts: []corev1.VolumeMount{
					{Name: "data", MountPath: "/data"},
					{Name: "tmp", MountPath: "/tmp"},
				},
				VolumeDevices: []corev1.VolumeDevice{{Name: "block", DevicePath: "/dev/block"}},
			}},
			Volumes: []corev1.Volume{
				{Name: "data", VolumeSource: claim("filesystem")},
				{Name: "block", VolumeSource: claim("block")},
				{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: new(corev1.EmptyDirVolumeSource)}},
			},
		},
	}
}

// nodeReady is what the API says of a node.
func (m *machine) nodeReady(ctx context.Context, name string) corev1.ConditionStatus {
	n, err := m.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return ""
}

func pidOf(s cluster.Status, component, node string) int {
	for _, p := range s.Components {
		if p.Name == component && p.Node == node {
			return p.PID
		}
	}
	return 0
}

// loseNode kills a node's init, which must look like the loss of a machine, and fixes it.
func (m *machine) loseNode(up cluster.Status) {
	if err := syscall.Kill(pidOf(up, "init", "node2"), syscall.SIGKILL); err != nil {
		m.Fatal(err)
	}
	m.await("node2 is not Ready after kill -9 of its init", time.Minute, func(ctx context.Context) bool {
		return m.nodeReady(ctx, "node2") == corev1.ConditionUnknown
	})
	if s := m.status(); s.Ready || s.Nodes[1].Ready || !s.Nodes[0].Ready {
		m.Errorf("status with a lost node: %+v", s.Nodes)
	}
	m.must("up")
	if s := m.status(); !s.Ready {
		m.Errorf("status after the repair: %+v", s)
	}
	m.await("the pods are Ready again", time.Minute, func(ctx context.Context) bool { return m.podsReady(ctx) == 2 })
	m.await("the pod on the repaired node works", 30*time.Second, func(context.Context) bool {
		out, err := m.exec("pod-node2", "cat /data/node1")
		return err == nil && out == "node1\n"
	})

	// A program of a node comes back by itself.
	s := m.status()
	old := pidOf(s, "kubelet", "node1")
	if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
		m.Fatal(err)
	}
	m.await("the kubelet of node1 is started again", 30*time.Second, func(context.Context) bool {
		pid := pidOf(m.status(), "kubelet", "node1")
		return pid != 0 && pid != old
	})
}

// cutNode cuts a node off, whose pod runs on, and then kills it and starts it again.
func (m *machine) cutNode() {
	before := m.status()
	m.must("node", "cut", "node2")
	m.await("node2 is not Ready after it was cut off", time.Minute, func(ctx context.Context) bool {
		return m.nodeReady(ctx, "node2") == corev1.ConditionUnknown
	})
	s := m.status()
	if s.Ready || !s.Nodes[1].Cut || s.Nodes[0].Cut ||
		pidOf(s, "kubelet", "node2") != pidOf(before, "kubelet", "node2") {
		m.Errorf("status with a node that is cut off: %+v", s)
	}
	lost, err := m.client.CoreV1().Pods("default").Get(context.Background(), "pod-node2", metav1.GetOptions{})
	if err != nil {
		m.Fatal(err)
	}
	for _, ip := range lost.Status.PodIPs {
		if out, err := m.get("pod-node1", ip.IP, "8080"); err != nil || out != "" {
			m.Errorf("a pod of a node that is cut off answers at %s: %q, %v", ip.IP, out, err)
		}
	}
	m.must("node", "heal", "node2")
	for _, ip := range lost.Status.PodIPs {
		m.await(ip.IP+" is reached again", 20*time.Second, func(context.Context) bool {
			out, err := m.get("pod-node1", ip.IP, "8080")
			return err == nil && out == "node2"
		})
	}
	m.await("node2 is Ready again", time.Minute, func(ctx context.Context) bool {
		return m.nodeReady(ctx, "node2") == corev1.ConditionTrue
	})
	m.await("the pods are Ready again", time.Minute, func(ctx context.Context) bool { return m.podsReady(ctx) == 2 })
	m.must("node", "stop", "node2")
	if s := m.status(); pidOf(s, "init", "node2") != 0 || pidOf(s, "init", "node1") != pidOf(before, "init", "node1") {
		m.Errorf("status with a stopped node: %+v", s.Components)
	}
	if _, err := m.run("node", "cut", "node2"); err == nil || !strings.Contains(err.Error(), "node start node2") {
		m.Errorf("a node that is off is cut: %v", err)
	}
	m.must("node", "start", "node2")
	if s := m.status(); !s.Ready {
		m.Errorf("status after the node was started: %+v", s)
	}
}

// loseControlPlane kills the control plane and fixes it: objects are there again, and pods have run on.
func (m *machine) loseControlPlane() {
	before := m.status()
	if err := syscall.Kill(pidOf(before, "control-plane", ""), syscall.SIGKILL); err != nil {
		m.Fatal(err)
	}
	m.await("status sees it", 10*time.Second, func(context.Context) bool {
		return pidOf(m.status(), "control-plane", "") == 0
	})
	m.must("up")
	after := m.status()
	if !after.Ready || pidOf(after, "init", "node1") != pidOf(before, "init", "node1") {
		m.Errorf("status after the repair of the control plane: %+v", after)
	}
	m.await("the pods are Ready", time.Minute, func(ctx context.Context) bool { return m.podsReady(ctx) == 2 })
	// Claims go, and their data with them.
	if err := m.client.CoreV1().Pods("default").DeleteCollection(context.Background(),
		metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		m.Fatal(err)
	}
	if err := m.client.CoreV1().PersistentVolumeClaims("default").DeleteCollection(context.Background(),
		metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		m.Fatal(err)
	}
	m.await("volumes are gone with their claims", 30*time.Second, func(ctx context.Context) bool {
		volumes, err := m.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
		if err != nil || len(volumes.Items) > 0 {
			return false
		}
		return len(m.status().Kept) == 0
	})
}

// dump tells what the cluster looked like when the test failed.
func (m *machine) dump() {
	for _, path := range []string{
		"/api/v1/nodes", "/api/v1/pods", "/api/v1/persistentvolumes", "/api/v1/persistentvolumeclaims",
		"/api/v1/events",
	} {
		out, err := m.client.CoreV1().RESTClient().Get().AbsPath(path).SetHeader("Accept",
			"application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(context.Background())
		m.Logf("%s (%v):\n%s", path, err, out)
	}
	for _, component := range []string{"init", "control-plane"} {
		out, err := m.run("logs", component, "--tail", "30")
		m.Logf("logs %s (%v):\n%s", component, err, out)
	}
}

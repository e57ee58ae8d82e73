package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/handler/podfs"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/network/apply"
	"github.com/virtkit/virtkit/tests/instance"
)

// plain is a guest that libvirt alone moves between two pods, one a node, each with a libvirtd and nothing else. Pods,
// domain and configuration are those of a guest of virtkit's. The daemons talk over the pod network.
type plain struct {
	*bench
	pods [2]*corev1.Pod
	at   int // the pod that has the guest
	// disk is the volume of a disk on a claim, which goes along, from a claim of the one pod's to one of the other's;
	// "" for a guest without one.
	disk string
}

const (
	// daemonPort is the daemons'.
	daemonPort = 16509
	// driver is where the program that speaks to libvirt is in a pod; see tests/bench/plain.
	driver = names.RunDir + "/tmp/plain"
	// overlay is the guest's disk, and below the image it is made on.
	overlay = names.DisksDir + "/root.qcow2"
)

// daemon waits for its configuration and runs libvirtd. The shell takes leave of the processes that libvirtd leaves to
// it, which a libvirtd that is the pod's first process does not: it waits 40 s for each QEMU to be gone.
const daemon = `trap 'exit 0' TERM; mkdir -p $XDG_CONFIG_HOME/libvirt $XDG_RUNTIME_DIR $TMPDIR; while [ ! -e $XDG_CONFIG_HOME/libvirt/complete ]; do sleep 0.1; done; libvirtd -t 0 -l & wait`

func newPlain(ctx context.Context, b *bench, like *guest, disk string) (_ *plain, err error) {
	p := &plain{bench: b, disk: disk}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close(ctx))
		}
	}()
	model, err := like.pod(ctx)
	if err != nil {
		return nil, err
	}
	if err := buildDriver(ctx); err != nil {
		return nil, err
	}
	text, err := drive(ctx, model, nil, "dump")
	if err != nil {
		return nil, err
	}
	nodes, err := b.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for i := range p.pods {
		if p.pods[i], err = p.start(ctx, like.vmi, model, nodes.Items[i].Name); err != nil {
			return nil, err
		}
	}
	if err := p.freshDisk(ctx, p.pods[0]); err != nil {
		return nil, err
	}
	if _, err := drive(ctx, p.pods[0], text, "create"); err != nil {
		return nil, err
	}
	// Nobody answers its DHCP.
	err = errors.Join(login(ctx, p), say(ctx, p, "killall udhcpc 2>/dev/null; ip addr add 10.0.2.2/24 dev eth0; ip "+
		"link set eth0 up; ip route add default via 10.0.2.1"))
	// Each daemon asks its QEMU what it can do when it first takes a guest; virt-handler has such answers ready.
	for range p.pods {
		if err == nil {
			_, _, err = p.move(ctx)
		}
	}
	return p, err
}

// start makes a pod like the model with a daemon in it that runs, and the guest's network.
func (p *plain) start(
	ctx context.Context, vmi *v1.VirtualMachineInstance, model *corev1.Pod, node string,
) (*corev1.Pod, error) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "plain-" + node, Namespace: p.namespace},
		Spec:       *model.Spec.DeepCopy(),
	}
	pod.Spec.NodeName, pod.Spec.NodeSelector = node, nil
	if p.disk != "" { // which its scheduler has made there
		pod.Spec.NodeName, pod.Spec.NodeSelector = "", map[string]string{corev1.LabelHostname: node}
	}
	for i := range pod.Spec.Volumes {
		if source := pod.Spec.Volumes[i].PersistentVolumeClaim; source != nil {
			source.ClaimName = plainClaim(node)
		}
	}
	c := &pod.Spec.Containers[0]
	c.Command, c.Args = []string{"/bin/sh", "-c", daemon}, nil
	for name, dir := range map[string]string{
		"HOME": "", "XDG_RUNTIME_DIR": "rt", "XDG_CONFIG_HOME": "config", "XDG_CACHE_HOME": "cache",
		"XDG_DATA_HOME": "data", "XDG_STATE_HOME": "state", "TMPDIR": "tmp",
	} {
		c.Env = append(c.Env, corev1.EnvVar{Name: name, Value: filepath.Join(names.RunDir, dir)})
	}
	c.Env = append(c.Env, corev1.EnvVar{Name: "MALLOC_ARENA_MAX", Value: "1"})
	if _, err := p.untilRunning(ctx, pod); err != nil {
		return nil, err
	}
	if err := p.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
		return nil, err
	}
	process, err := podfs.FindMounted("/proc", pod.UID, names.RunDir)
	if err != nil {
		return nil, err
	}
	ns, err := podNamespace(pod)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	links, err := apply.Links(ns)
	if err != nil {
		return nil, err
	}
	guest := vmi.DeepCopy()
	guest.Spec.Domain.Devices.Interfaces[0].Ports = []v1.Port{{Port: 9}} // the others are the daemon's
	plan, err := network.NewPlan(guest, network.Pod{Links: links})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(apply.Apply(ns, plan), process.EnsureTun()); err != nil {
		return nil, err
	}
	return pod, p.configure(ctx, model, pod)
}

var hostUUID = regexp.MustCompile(`(?m)^host_uuid = .*$`)

// configure gives a daemon the configuration of the launcher's, but for what must differ, and waits until it answers.
func (p *plain) configure(ctx context.Context, model, pod *corev1.Pod) error {
	from, err := inPod(model, "config/libvirt")
	if err != nil {
		return err
	}
	to, err := inPod(pod, "config/libvirt")
	if err != nil {
		return err
	}
	for _, name := range []string{"libvirtd.conf", "qemu.conf", "complete"} {
		var text []byte
		if name != "complete" {
			if text, err = os.ReadFile(filepath.Join(from, name)); err != nil {
				return err
			}
		}
		if name == "libvirtd.conf" {
			text = hostUUID.ReplaceAll(text, []byte(`host_uuid = "`+string(uuid.NewUUID())+`"`))
			text = append(text,
				"listen_tls = 0\nlisten_tcp = 1\nauth_tcp = \"none\"\ntcp_port = \""+strconv.Itoa(daemonPort)+"\"\n"...)
		}
		if err := os.WriteFile(filepath.Join(to, name), text, 0o644); err != nil { //nolint:gosec // the pod's user reads it
			return err
		}
	}
	socket, err := inPod(pod, names.SocketLibvirt)
	if err != nil {
		return err
	}
	for {
		if _, err := os.Stat(socket); err == nil {
			return nil
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// freshDisk makes the guest's disk in a pod anew: what a guest that has left leaves there is of no use.
func (p *plain) freshDisk(ctx context.Context, pod *corev1.Pod) error {
	image := filepath.Join(names.ContainerDisksDir, "root/disk/tiny.qcow2")
	_, err := enter(ctx, pod, nil, "qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", image, overlay)
	return err
}

// plainClaim is the claim of the pod on a node.
func plainClaim(node string) string { return "plain-" + node }

// emptied makes the disk on a pod's claim an empty one, of the size of the one that the other pod has.
func (p *plain) emptied(from, to *corev1.Pod) error {
	has, err := p.image(from)
	if err != nil {
		return err
	}
	info, err := os.Stat(has)
	if err != nil {
		return err
	}
	path, err := p.image(to)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o666) //nolint:gosec // the pod's user writes it
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(info.Size()), f.Chown(names.User, names.User), f.Close())
}

// image is the disk on a pod's claim, as this machine sees it.
func (p *plain) image(pod *corev1.Pod) (string, error) {
	pid, err := podPID(pod)
	return filepath.Join(fmt.Sprintf("/proc/%d/root", pid), names.ClaimsDir, p.disk, "disk.img"), err
}

func (p *plain) pings() int { return 72 }

func (p *plain) terminal(context.Context) (net.Conn, error) {
	socket, err := inPod(p.pods[p.at], names.SocketSerial)
	if err != nil {
		return nil, err
	}
	return net.Dial("unix", socket)
}

func (p *plain) move(ctx context.Context) (wall, still time.Duration, err error) {
	from, to := p.pods[p.at], p.pods[1-p.at]
	if err := p.freshDisk(ctx, to); err != nil {
		return 0, 0, err
	}
	args := []string{
		"migrate", fmt.Sprintf("qemu+tcp://%s:%d/session", to.Status.PodIP, daemonPort),
		"tcp://" + to.Status.PodIP, "vda",
	}
	if p.disk != "" {
		if err := p.emptied(from, to); err != nil {
			return 0, 0, err
		}
		args = append(args, "vdb")
	}
	text, err := drive(ctx, from, nil, args[0], args[1:]...)
	if err != nil {
		return 0, 0, err
	}
	p.at = 1 - p.at
	var elapsed int64
	if err := json.Unmarshal(text, &elapsed); err != nil {
		return 0, 0, fmt.Errorf("plain migrate says %q: %w", text, err)
	}
	still, err = account(ctx, to)
	return time.Duration(elapsed) * time.Millisecond, still, err
}

func (p *plain) close(ctx context.Context) error {
	var errs []error
	for _, pod := range p.pods {
		if pod != nil {
			errs = append(errs, p.remove(ctx, pod))
		}
	}
	return errors.Join(errs...)
}

// remove deletes a pod and forgets it: how long it takes is nobody's concern.
func (b *bench) remove(ctx context.Context, pod *corev1.Pod) error {
	return b.Client.Delete(ctx, pod, client.GracePeriodSeconds(1))
}

// account is how long the guest in a pod stood still when it came, as its libvirtd has it from the other.
func account(ctx context.Context, pod *corev1.Pod) (time.Duration, error) {
	text, err := drive(ctx, pod, nil, "account")
	if err != nil {
		return 0, err
	}
	var still int64
	if err := json.Unmarshal(text, &still); err != nil {
		return 0, fmt.Errorf("plain account says %q: %w", text, err)
	}
	return time.Duration(still) * time.Millisecond, nil
}

// driverFile is where the driver is built.
var driverFile = filepath.Join("bin", "bench-plain")

func buildDriver(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-tags", "libvirt_dlopen", "-o", driverFile, "./tests/bench/plain")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build tests/bench/plain: %w: %s", err, text)
	}
	return nil
}

// drive runs the driver in a pod that has a libvirtd.
func drive(ctx context.Context, pod *corev1.Pod, stdin []byte, verb string, args ...string) ([]byte, error) {
	there, err := inPod(pod, strings.TrimPrefix(driver, names.RunDir+"/"))
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(there); errors.Is(err, os.ErrNotExist) {
		program, err := os.ReadFile(driverFile)
		if err == nil {
			err = os.WriteFile(there, program, 0o755) //nolint:gosec // a program
		}
		if err != nil {
			return nil, err
		}
	}
	return enter(ctx, pod, stdin, driver,
		append([]string{verb, filepath.Join(names.RunDir, names.SocketLibvirt)}, args...)...)
}

// enter runs a program in a pod's file system, as its user.
func enter(ctx context.Context, pod *corev1.Pod, stdin []byte, program string, args ...string) ([]byte, error) {
	pid, err := podPID(pod)
	if err != nil {
		return nil, err
	}
	user := strconv.Itoa(names.User)
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, "nsenter",
		append([]string{"--target", strconv.Itoa(pid), "--mount", "--setuid", user, "--setgid", user, "--", program},
			args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &stdout, &stderr
	cmd.Env = []string{
		"PATH=/usr/bin:/bin:/usr/sbin:/sbin", "HOME=" + names.RunDir,
		"XDG_RUNTIME_DIR=" + names.RunDir + "/rt",
	}
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s in pod %s: %w: %s", filepath.Base(program), pod.Name, err,
			strings.TrimSpace(stderr.String()))
	}
	return stdout.Bytes(), nil
}

// inPod is a path in a pod's run directory as this machine sees it, short enough for a unix socket.
func inPod(pod *corev1.Pod, name string) (string, error) {
	pid, err := podPID(pod)
	return filepath.Join(fmt.Sprintf("/proc/%d/root", pid), names.RunDir, name), err
}

// podPID is the process of a pod that is not its sandbox.
func podPID(pod *corev1.Pod) (int, error) {
	processes, err := instance.Processes(string(pod.UID))
	if err != nil {
		return 0, err
	}
	for _, p := range processes {
		if p.Command == "virt-launcher" || p.Command == "busybox" {
			return p.PID, nil
		}
	}
	return 0, fmt.Errorf("pod %s has no process: %v", pod.Name, processes)
}

func podNamespace(pod *corev1.Pod) (*os.File, error) {
	pid, err := podPID(pod)
	if err != nil {
		return nil, err
	}
	return os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
}

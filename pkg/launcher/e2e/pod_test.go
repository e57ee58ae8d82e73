//go:build e2e

// Package e2e runs the real launcher, in its real image, as the pod's PID 1 and user 107, with the
// test in the part of virt-handler and of the kubelet: it makes the namespaces, the network and the
// volumes, and talks to the launcher over its socket. It needs root and what `make images` leaves.
package e2e

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/network"
)

const repository = "../../.."

// cache is a capability cache that the first pod leaves for the others, as virt-handler does.
var cache = struct {
	sync.Mutex
	dir string
}{}

// rootfs is the launcher image, unpacked once a test run.
var rootfs string

// skipInShort leaves out of runs with -short, such as CI's, what takes long and that tests/e2e shows, too, or a test
// beside it.
func skipInShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("not with -short; make test-long has it")
	}
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "virtkit-launcher-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	rootfs = os.Getenv("VIRTKIT_LAUNCHER_ROOTFS")
	if rootfs == "" {
		rootfs = filepath.Join(dir, "root")
		if err := unpack(filepath.Join(repository, "bin/images/virt-launcher.tar"), rootfs); err != nil {
			fmt.Fprintln(os.Stderr, "unpack the launcher image (make images makes it):", err)
			return 1
		}
	}
	if cache.dir, err = os.MkdirTemp(dir, "cache-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// unpack lays the layers of a docker archive over each other.
func unpack(archive, dir string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	layers := map[string][]byte{}
	var manifest []struct{ Layers []string }
	r := tar.NewReader(f)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		b, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if h.Name == "manifest.json" {
			if err := json.Unmarshal(b, &manifest); err != nil {
				return err
			}
			continue
		}
		layers[h.Name] = b
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range manifest[0].Layers {
		var layer io.Reader = bytes.NewReader(layers[name])
		if z, err := gzip.NewReader(bytes.NewReader(layers[name])); err == nil {
			layer = z
		}
		cmd := exec.Command("tar", "-x", "-C", dir)
		cmd.Stdin, cmd.Stderr = layer, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("layer %s: %w", name, err)
		}
	}
	return nil
}

// pod is one launcher pod.
type pod struct {
	t      *testing.T
	dir    string
	cmd    *exec.Cmd
	pid    int
	client pb.LauncherClient
	exited chan struct{}
	began  time.Time
	vmi    *v1.VirtualMachineInstance
}

// setup is what a container runtime does: mounts, devices, root, user.
const setup = `set -e
# inside PATH: where it is without the absolute link /var/run -> /run, which would lead out of the root.
inside() { if [ -L "$ROOT/var/run" ]; then echo "${1#/var}"; else echo "$1"; fi; }
mount --make-rprivate /
mount --bind "$ROOT" "$ROOT"
mount -t proc proc "$ROOT/proc"; mount -t sysfs -o ro sys "$ROOT/sys"; mount --bind /sys/fs/cgroup "$ROOT/sys/fs/cgroup"
mount -t tmpfs dev "$ROOT/dev"
mkdir -p "$ROOT/dev/net" "$ROOT/dev/shm"
chmod 1777 "$ROOT/dev/shm"
mknod -m 666 "$ROOT/dev/null" c 1 3; mknod -m 666 "$ROOT/dev/zero" c 1 5
mknod -m 666 "$ROOT/dev/random" c 1 8; mknod -m 666 "$ROOT/dev/urandom" c 1 9
mknod -m 666 "$ROOT/dev/net/tun" c 10 200
touch "$ROOT/dev/termination-log"; mount --bind "$DIR/termination-log" "$ROOT/dev/termination-log"
mount -t tmpfs run "$ROOT/run"
for m in "run $RUN" "disks $DISKS" "container-disks $CONTAINERDISKS" "secrets $SECRETS"; do
  set -- $m; mkdir -p "$ROOT$(inside "$2")"; mount --bind "$DIR/$1" "$ROOT$(inside "$2")"
done
mkdir -p "$ROOT$(inside "$CLAIMS")"; mount --bind "$CLAIMSFROM" "$ROOT$(inside "$CLAIMS")"
echo "nameserver 10.96.0.10" > "$ROOT/run/resolv.conf"; rm -f "$ROOT/etc/resolv.conf" 2>/dev/null; touch "$ROOT/etc/resolv.conf"; mount --bind "$ROOT/run/resolv.conf" "$ROOT/etc/resolv.conf"
if [ "$TMP" = yes ]; then mount -t tmpfs -o mode=1777 tmp "$ROOT/tmp"; fi
mount -o remount,bind,ro "$ROOT"
ip link set lo up
sysctl -qw net.ipv4.ip_unprivileged_port_start=0
ip link add k6t-eth0 type bridge; ip addr add 10.0.2.1/24 dev k6t-eth0; ip link set k6t-eth0 up
ip tuntap add tap0 mode tap user 107 group 107 vnet_hdr; ip link set tap0 master k6t-eth0 up
exec chroot --userspec=107:107 --groups=107 "$ROOT" /usr/bin/virt-launcher "$@"
`

// newPod starts a launcher for the VMI.
func newPod(t *testing.T, vmi *v1.VirtualMachineInstance, args ...string) *pod {
	t.Helper()
	return newPodOnClaims(t, vmi, "", args...)
}

// newPodOnClaims starts a launcher that has its claims in a directory of the test's, if it is given one.
func newPodOnClaims(t *testing.T, vmi *v1.VirtualMachineInstance, claims string, args ...string) *pod {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("this test makes namespaces and mounts: run it as root")
	}
	dir, err := os.MkdirTemp("/tmp", "vkl-") //nolint:usetesting // short: a socket's path has 107 bytes at most
	if err != nil {
		t.Fatal(err)
	}
	p := &pod{t: t, dir: dir, exited: make(chan struct{}), vmi: vmi}
	for _, d := range []string{"run", "disks", "container-disks/disk0/disk", "claims", "secrets"} {
		p.mkdir(d)
	}
	if claims == "" {
		claims = filepath.Join(dir, "claims")
	}
	p.write("termination-log", nil)
	p.installDisk()
	script := "set -- " +
		strings.Join(append([]string{"--name=" + vmi.Name, "--namespace=" + vmi.Namespace, "--uid=" + string(vmi.UID)},
			args...), " ") + "\n" + setup
	// `set --` in the loop of mounts would lose the arguments.
	script = strings.Replace(script, "set -e\n", "set -e\nARGS=\"$*\"\n", 1)
	script = strings.Replace(script, `"$@"`, "$ARGS", 1)
	p.cmd = exec.Command("unshare", "--pid", "--fork", "--mount", "--net", "--uts", "--ipc", "sh", "-c", script)
	p.cmd.Env = append(os.Environ(), "ROOT="+rootfs, "DIR="+dir, "RUN="+names.RunDir, "DISKS="+names.DisksDir,
		"CONTAINERDISKS="+names.ContainerDisksDir, "CLAIMS="+names.ClaimsDir, "CLAIMSFROM="+claims,
		"SECRETS="+names.SecretsDir)
	if vmi.Spec.Domain.Devices.TPM != nil {
		p.cmd.Env = append(p.cmd.Env, "TMP=yes") // as virt-controller's pods have it
	}
	logs, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdout = os.Stderr
	p.began = time.Now()
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for r := bufio.NewReader(logs); ; {
			line, err := r.ReadString('\n')
			if line != "" {
				t.Log(strings.TrimSpace(line))
			}
			if err != nil {
				return
			}
		}
	}()
	go func() {
		<-done
		_ = p.cmd.Wait() // the exit code is read from ProcessState
		close(p.exited)
	}()
	t.Cleanup(p.cleanup)
	p.connect()
	return p
}

func (p *pod) mkdir(name string) {
	p.t.Helper()
	path := filepath.Join(p.dir, name)
	if err := os.MkdirAll(path, 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Chown(path, names.User, names.Group); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pod) write(name string, data []byte) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), data, 0o666); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(p.dir, name), 0o666); err != nil {
		p.t.Fatal(err)
	}
}

// installDisk puts the tiny guest's disk where the kubelet mounts a container disk.
func (p *pod) installDisk() {
	p.t.Helper()
	src := filepath.Join(repository, "bin/images/tiny.qcow2")
	dst := filepath.Join(p.dir, "container-disks/disk0/disk/tiny.qcow2")
	if out, err := exec.Command("install", "-m", "444", src, dst).CombinedOutput(); err != nil {
		p.t.Fatalf("the tiny guest's disk (make images makes it): %v\n%s", err, out)
	}
}

// connect waits for the launcher's socket, and finds the launcher by it as virt-handler does.
func (p *pod) connect() {
	p.t.Helper()
	socket := filepath.Join(p.dir, "run", names.SocketLauncher)
	var c net.Conn
	p.eventually(10*time.Second, "the launcher's socket", func() bool {
		var err error
		c, err = net.Dial("unix", socket)
		return err == nil
	})
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		p.t.Fatal(err)
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil || credErr != nil {
		p.t.Fatal(err, credErr)
	}
	if err := c.Close(); err != nil {
		p.t.Fatal(err)
	}
	p.pid = int(cred.Pid)
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = conn.Close() })
	p.client = pb.NewLauncherClient(conn)
	p.t.Logf("launcher answers after %v, pid %d uid %d", time.Since(p.began).Round(time.Millisecond), cred.Pid,
		cred.Uid)
}

// putCache gives the pod the capability cache of an earlier one.
func (p *pod) putCache() {
	cache.Lock()
	defer cache.Unlock()
	files, err := filepath.Glob(cache.dir + "/*.xml")
	if err != nil {
		p.t.Fatal(err)
	}
	for _, f := range files {
		out, err := exec.Command("install", "-o", "107", "-g", "107", f,
			filepath.Join(p.dir, "run", names.CapabilityCacheDir)).CombinedOutput()
		if err != nil {
			p.t.Fatalf("%v\n%s", err, out)
		}
	}
}

func (p *pod) keepCache() {
	cache.Lock()
	defer cache.Unlock()
	files, err := filepath.Glob(filepath.Join(p.dir, "run", names.CapabilityCacheDir, "*.xml"))
	if err != nil {
		p.t.Fatal(err)
	}
	for _, f := range files {
		if out, err := exec.Command("cp", "-p", f, cache.dir).CombinedOutput(); err != nil {
			p.t.Fatalf("%v\n%s", err, out)
		}
	}
}

// interfaces are those of the pod's network.
func (p *pod) interfaces() []network.Interface {
	return []network.Interface{{
		Name: "default", Binding: network.Masquerade, PodLink: "eth0", BridgeLink: "k6t-eth0", Tap: "tap0",
		MAC: "02:00:00:11:22:33", MTU: 1450, Gateway: netip.MustParsePrefix("10.0.2.1/24"),
		Guest: netip.MustParseAddr("10.0.2.2"), Hostname: p.vmi.Name,
	}}
}

// start calls Start with the pod's network.
func (p *pod) start() (*pb.StartResponse, error) {
	p.t.Helper()
	p.putCache()
	vmi, err := json.Marshal(p.vmi)
	if err != nil {
		p.t.Fatal(err)
	}
	plan, err := json.Marshal(network.Plan{Interfaces: p.interfaces()})
	if err != nil {
		p.t.Fatal(err)
	}
	began := time.Now()
	r, err := p.client.Start(p.t.Context(), &pb.StartRequest{VmiJson: vmi, NetworkPlanJson: plan})
	p.t.Logf("Start took %v: %v", time.Since(began).Round(time.Millisecond), err)
	if err == nil {
		p.keepCache()
	}
	return r, err
}

// mustStart starts the guest and waits for its login prompt.
func (p *pod) mustStart() *pb.GuestState {
	p.t.Helper()
	r, err := p.start()
	if err != nil {
		p.t.Fatal(err)
	}
	began := time.Now()
	p.waitConsole("login:", 90*time.Second)
	p.t.Logf("login after %v", time.Since(began).Round(10*time.Millisecond))
	return r.State
}

func (p *pod) console() string {
	b, err := os.ReadFile(filepath.Join(p.dir, "run", names.LogSerial))
	if err != nil {
		return ""
	}
	return string(b)
}

func (p *pod) waitConsole(text string, limit time.Duration) {
	p.t.Helper()
	p.eventually(limit, fmt.Sprintf("%q on the console", text), func() bool {
		return strings.Contains(p.console(), text)
	})
}

func (p *pod) eventually(limit time.Duration, what string, ok func() bool) {
	p.t.Helper()
	deadline := time.Now().Add(limit)
	for !ok() {
		if time.Now().After(deadline) {
			console := p.console()
			p.t.Fatalf("%s: not within %v; the console ends\n%s", what, limit, console[max(0, len(console)-2000):])
		}
		select {
		case <-p.exited:
			if !ok() {
				p.t.Fatalf("%s: the launcher has ended: %v", what, p.cmd.ProcessState)
			}
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// watch gives the states that the launcher reports, until it ends.
func (p *pod) watch() <-chan *pb.GuestState {
	p.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p.t.Cleanup(cancel)
	stream, err := p.client.Watch(ctx, &pb.WatchRequest{})
	if err != nil {
		p.t.Fatal(err)
	}
	states := make(chan *pb.GuestState, 1000)
	go func() {
		defer close(states)
		for {
			s, err := stream.Recv()
			if err != nil {
				return
			}
			states <- s
		}
	}()
	return states
}

// waitState reads states until one is as wanted.
func (p *pod) waitState(states <-chan *pb.GuestState, limit time.Duration, what string, ok func(*pb.GuestState) bool,
) *pb.GuestState {
	p.t.Helper()
	timeout := time.After(limit)
	var last *pb.GuestState
	for {
		select {
		case s, more := <-states:
			if !more {
				p.t.Fatalf("%s: the stream ended; the last state was %v", what, last)
			}
			if last = s; ok(s) {
				return s
			}
		case <-timeout:
			p.t.Fatalf("%s: not within %v; the last state was %v", what, limit, last)
		}
	}
}

func (p *pod) shutdown(grace time.Duration) {
	p.t.Helper()
	if _, err := p.client.Shutdown(p.t.Context(), &pb.ShutdownRequest{GracePeriod: durationpb.New(grace)}); err != nil {
		p.t.Fatal(err)
	}
}

// waitExit waits for the pod's end and gives its exit code and termination message.
func (p *pod) waitExit(limit time.Duration) (int, string) {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(limit):
		p.t.Fatalf("the launcher has not ended within %v", limit)
	}
	b, err := os.ReadFile(filepath.Join(p.dir, "termination-log"))
	if err != nil {
		p.t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode(), string(b)
}

// process finds a process of the pod by its name, 0 if there is none.
func (p *pod) process(name string) int {
	ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", p.pid))
	if err != nil {
		return 0
	}
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		p.t.Fatal(err)
	}
	for _, proc := range procs {
		link, err := os.Readlink(proc + "/ns/pid")
		if err != nil || link != ns {
			continue
		}
		comm, err := os.ReadFile(proc + "/comm")
		var pid int
		if err == nil && strings.HasPrefix(strings.TrimSpace(string(comm)), name) {
			if _, err := fmt.Sscanf(proc, "/proc/%d", &pid); err == nil {
				return pid
			}
		}
	}
	return 0
}

func (p *pod) kill(pid int, sig syscall.Signal) {
	p.t.Helper()
	if pid == 0 {
		p.t.Fatal("no such process in the pod")
	}
	if err := syscall.Kill(pid, sig); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pod) cleanup() {
	select {
	case <-p.exited:
	default:
		// The launcher is PID 1 of its namespace: all goes with it.
		if p.pid != 0 {
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
		} else {
			_ = p.cmd.Process.Kill()
		}
		<-p.exited
	}
	if logs, err := filepath.Glob(filepath.Join(p.dir, "run/cache/libvirt/qemu/log/*-swtpm.log")); err == nil &&
		p.t.Failed() {
		for _, name := range logs {
			b, err := os.ReadFile(name)
			p.t.Logf("%s: %v\n%s", name, err, b)
		}
	}
	if err := os.RemoveAll(p.dir); err != nil {
		p.t.Error(err)
	}
}

// tinyVMI is the tiny guest as admission leaves it.
func tinyVMI(name string) *v1.VirtualMachineInstance {
	memory := resource.MustParse("128Mi")
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "default", UID: "11111111-2222-3333-4444-555555555555",
	}}
	vmi.Spec.Domain.Memory = &v1.Memory{Guest: &memory}
	vmi.Spec.Domain.Machine = &v1.Machine{Type: "q35"}
	vmi.Spec.Domain.Devices.Rng = &v1.Rng{}
	vmi.Spec.Domain.Devices.Disks = []v1.Disk{
		{Name: "disk0", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}},
		{Name: "cloudinit", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}},
	}
	vmi.Spec.Volumes = []v1.Volume{
		{Name: "disk0", VolumeSource: v1.VolumeSource{ContainerDisk: &v1.ContainerDiskSource{Image: "tiny"}}},
		{
			Name: "cloudinit",
			VolumeSource: v1.VolumeSource{
				CloudInitNoCloud: &v1.CloudInitNoCloudSource{UserData: "#cloud-config\nhostname: seeded\n"},
			},
		},
	}
	vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{
		{Name: "default", InterfaceBindingMethod: v1.InterfaceBindingMethod{Masquerade: &v1.InterfaceMasquerade{}}},
	}
	vmi.Spec.Networks = []v1.Network{{Name: "default", NetworkSource: v1.NetworkSource{Pod: &v1.PodNetwork{}}}}
	return vmi
}

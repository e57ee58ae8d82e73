package podfs

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/virtkit/virtkit/pkg/names"
)

// rightsWorld is a node with a launcher's pod.
type rightsWorld struct {
	podWorld
	host    string // the node's root
	plugins string
	rights  *Rights
	p       *Process
}

// newRights is a world whose launcher is in a control group, by /proc/<pid>/cgroup.
func newRights(t *testing.T, cgroup string) rightsWorld {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may make device nodes")
	}
	w := rightsWorld{podWorld: newPodWorld(t)}
	dir := filepath.Dir(w.proc)
	w.host, w.plugins = filepath.Join(dir, "host"), filepath.Join(dir, "plugins")
	for _, d := range []string{
		filepath.Join(w.proc, "1"), filepath.Join(w.host, "dev"), filepath.Join(w.host, "sys/fs"), w.plugins,
	} {
		check(t, os.MkdirAll(d, 0o755))
	}
	check(t, os.Symlink(w.host, filepath.Join(w.proc, "1/root")))
	check(t, os.WriteFile(filepath.Join(w.own, "cgroup"), []byte(cgroup), 0o644))
	w.rights = &Rights{Proc: w.proc, Pods: w.pods, Plugins: w.plugins, Dir: filepath.Join(dir, "state")}
	p, err := openProcess(w.proc, os.Getpid())
	check(t, err)
	t.Cleanup(p.Close)
	p.Pod = pod
	w.p = p
	return w
}

// entry is one of the kubelet's record.
type entry struct {
	PodUID, ContainerName, ResourceName string
	DeviceIDs                           map[string][]string
	AllocResp                           []byte
}

// record is the kubelet's, of what it gave to containers.
func (w rightsWorld) record(t *testing.T, entries ...entry) {
	t.Helper()
	text, err := json.Marshal(map[string]any{
		"Data":     map[string]any{"PodDeviceEntries": entries, "RegisteredDevices": map[string][]string{"a/b": {"1"}}},
		"Checksum": 1,
	})
	check(t, err)
	check(t, os.WriteFile(filepath.Join(w.plugins, checkpoint), text, 0o600))
}

func granting(t *testing.T, uid types.UID, container string, given *pluginapi.ContainerAllocateResponse) entry {
	t.Helper()
	response, err := proto.Marshal(given)
	check(t, err)
	return entry{PodUID: string(uid), ContainerName: container, ResourceName: "vendor/thing", AllocResp: response}
}

func device(path, permissions string) *pluginapi.ContainerAllocateResponse {
	return &pluginapi.ContainerAllocateResponse{
		Devices: []*pluginapi.DeviceSpec{{HostPath: path, ContainerPath: "/dev/x", Permissions: permissions}},
	}
}

// mknod makes a device node of the node's.
func (w rightsWorld) mknod(t *testing.T, name string, d Device) {
	t.Helper()
	check(t, os.MkdirAll(filepath.Dir(filepath.Join(w.host, name)), 0o755))
	check(t, unix.Mknod(filepath.Join(w.host, name), d.Kind|0o600, int(d.Number)))
}

// claim has the kubelet prepare a block device for a pod.
func (w rightsWorld) claim(t *testing.T, name, device string) {
	t.Helper()
	maps := filepath.Join(w.pods, string(pod), "volumeDevices/kubernetes.io~csi")
	check(t, os.MkdirAll(maps, 0o755))
	check(t, os.Symlink(device, filepath.Join(maps, name)))
}

func TestGranted(t *testing.T) {
	w := newRights(t, "")
	granted := func() Devices {
		t.Helper()
		got, err := Granted(w.proc, w.pods, w.plugins, pod)
		check(t, err)
		return got
	}
	if got := granted(); len(got) > 0 {
		t.Errorf("without any record: %v", got)
	}
	w.mknod(t, "/dev/thing", Char(unix.Mkdev(60, 1)))
	w.mknod(t, "/dev/vfio/12", Char(unix.Mkdev(60, 2)))
	w.mknod(t, "/dev/vfio/deep/13", Char(unix.Mkdev(60, 3)))
	w.mknod(t, "/dev/named", Char(unix.Mkdev(60, 4)))
	w.mknod(t, "/dev/all-named", Char(unix.Mkdev(60, 5)))
	w.mknod(t, "/dev/other", Char(unix.Mkdev(60, 6)))
	w.mknod(t, "/dev/sda", Block(unix.Mkdev(8, 0)))
	w.mknod(t, "/dev/loop9", Block(unix.Mkdev(7, 9)))
	check(t, os.Symlink("/dev/loop9", filepath.Join(w.host, "dev/disk")))
	check(t, os.WriteFile(filepath.Join(w.host, "dev/file"), nil, 0o600))
	// What the pod has in its /dev, which it may have made.
	check(t, unix.Mknod(filepath.Join(w.root, "dev/sda"), unix.S_IFBLK|0o666, int(unix.Mkdev(8, 0))))
	w.claim(t, "pv-1", "/dev/disk")
	check(t, os.MkdirAll(filepath.Join(w.host, "etc/cdi"), 0o755))
	check(t, os.WriteFile(filepath.Join(w.host, "etc/cdi/vendor.yaml"), []byte(`
cdiVersion: 0.6.0
kind: vendor.com/gpu
containerEdits: {deviceNodes: [{path: /dev/all-named}]}
devices:
- name: "0"
  containerEdits: {deviceNodes: [{path: /dev/elsewhere, hostPath: /dev/named, permissions: r}]}
- name: "1"
  containerEdits: {deviceNodes: [{path: /dev/other}]}
`), 0o644))
	w.record(t,
		granting(t, pod, names.ContainerCompute, device("/dev/thing", "rw")),
		granting(t, pod, names.ContainerCompute, device("/dev/thing", "m")),
		granting(t, pod, names.ContainerCompute, device("/dev/vfio", "")),
		granting(t, pod, names.ContainerCompute, device("/dev/unplugged", "rw")),
		granting(t, pod, names.ContainerCompute, device("/dev/file", "rw")),
		granting(t, pod, names.ContainerCompute,
			&pluginapi.ContainerAllocateResponse{CdiDevices: []*pluginapi.CDIDevice{{Name: "vendor.com/gpu=0"}}}),
		granting(t, pod, "sidecar", device("/dev/other", "rw")),
		granting(t, "another-pod", names.ContainerCompute, device("/dev/sda", "rw")),
	)
	want := Devices{
		Char(unix.Mkdev(60, 1)): everyAccess, Char(unix.Mkdev(60, 2)): everyAccess,
		Char(unix.Mkdev(60, 3)): everyAccess,
		Char(unix.Mkdev(60, 4)): unix.BPF_DEVCG_ACC_READ, Char(unix.Mkdev(60, 5)): everyAccess,
		Block(unix.Mkdev(7, 9)): everyAccess,
	}
	if got := granted(); fmt.Sprint(got.rules()) != fmt.Sprint(want.rules()) {
		t.Errorf("granted %v, want %v", got.rules(), want.rules())
	}
	for what, text := range map[string]string{
		"no JSON": "x",
		"no data": "{}",
		"no grant": `{"Data":{"PodDeviceEntries":[{"PodUID":"` + string(pod) +
			`","ContainerName":"compute","AllocResp":"/w=="}]}}`,
	} {
		check(t, os.WriteFile(filepath.Join(w.plugins, checkpoint), []byte(text), 0o600))
		if got, err := Granted(w.proc, w.pods, w.plugins, pod); err == nil {
			t.Errorf("%s: %v", what, got)
		}
	}
	w.record(t,
		granting(t, pod, names.ContainerCompute,
			&pluginapi.ContainerAllocateResponse{CdiDevices: []*pluginapi.CDIDevice{{Name: "vendor.com/gpu=7"}}}))
	if got, err := Granted(w.proc, w.pods, w.plugins, pod); err == nil {
		t.Errorf("a device that nobody describes: %v", got)
	}
	for _, uid := range []types.UID{"", "*", "../x", "a/b"} {
		if got, err := Granted(w.proc, w.pods, w.plugins, uid); err == nil {
			t.Errorf("pod %q: %v", uid, got)
		}
	}
}

// On version 1 a device is allowed and denied by itself, by its number on record and not by what the pod has in /dev.
func TestRightsVersion1(t *testing.T) {
	group := "/kubepods/pod" + string(pod) + "/c"
	w := newRights(t, "5:devices:"+group+"\n0::/\n")
	dir := filepath.Join(w.host, "sys/fs/cgroup/devices", group)
	check(t, os.MkdirAll(dir, 0o755))
	said := func(file string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(dir, file))
		check(t, err)
		check(t, os.Remove(filepath.Join(dir, file)))
		return string(text)
	}
	silent := func() {
		t.Helper()
		if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
			t.Errorf("said %v, %v", files, err)
		}
	}
	check(t, w.rights.Allow(w.p, "volume/a", Block(unix.Mkdev(7, 9))))
	if got := said("devices.allow"); got != "b 7:9 rwm" {
		t.Errorf("allow: %q", got)
	}
	// The pod's node is the node's disk meanwhile. The next virt-handler knows what was given.
	check(t, os.MkdirAll(filepath.Join(w.root, "dev/virtkit-block"), 0o755))
	check(t, unix.Mknod(filepath.Join(w.root, "dev/virtkit-block/a"), unix.S_IFBLK|0o666, int(unix.Mkdev(8, 0))))
	next := &Rights{Proc: w.proc, Pods: w.pods, Plugins: w.plugins, Dir: w.rights.Dir}
	if got, ok, err := next.Given(pod, "volume/a"); err != nil || !ok || got != Block(unix.Mkdev(7, 9)) {
		t.Errorf("on record: %v, %t, %v", got, ok, err)
	}
	check(t, next.Deny(w.p, "volume/b")) // never given
	silent()
	check(t, next.Deny(w.p, "volume/a"))
	if got := said("devices.deny"); got != "b 7:9 rwm" {
		t.Errorf("deny: %q", got)
	}
	check(t, next.Deny(w.p, "volume/a"))
	silent()
	// What the pod has for another reason is not taken from it.
	w.mknod(t, "/dev/loop9", Block(unix.Mkdev(7, 9)))
	w.claim(t, "pv-1", "/dev/loop9")
	check(t, next.Allow(w.p, "volume/a", Block(unix.Mkdev(7, 9))))
	check(t, next.Deny(w.p, "volume/a"))
	if got := said("devices.allow"); got != "b 7:9 rwm" {
		t.Errorf("allow: %q", got)
	}
	silent()
	// A volume of the same name with another device.
	check(t, next.Allow(w.p, "volume/a", Block(unix.Mkdev(7, 10))))
	check(t, next.Allow(w.p, "volume/a", Block(unix.Mkdev(7, 11))))
	if allow, deny := said("devices.allow"), said("devices.deny"); allow != "b 7:11 rwm" || deny != "b 7:10 rwm" {
		t.Errorf("allow %q, deny %q", allow, deny)
	}
	check(t, next.KeepOnly(func(uid types.UID) bool { return uid == pod }))
	if _, ok, err := next.Given(pod, "volume/a"); !ok || err != nil {
		t.Errorf("forgotten: %v", err)
	}
	check(t, next.Forget(pod))
	if left, err := os.ReadDir(next.Dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	other := *w.p
	other.Pod = "11111111-2222-3333-4444-555555555555"
	if err := next.Allow(&other, "volume/a", Block(unix.Mkdev(7, 9))); err == nil {
		t.Error("a process of another pod was given a device")
	}
}

// On version 2, where all rules are replaced at once, a device node that somebody has made in the pod's /dev stays of
// no use, and what the kubelet has granted and virt-handler has given stays of use. The kernel is asked.
func TestRightsVersion2(t *testing.T) {
	mount := unified(t)
	above, err := os.MkdirTemp(mount, "virtkit-test-") //nolint:usetesting // a control group
	if err != nil {
		t.Skipf("cannot make a control group: %v", err)
	}
	dir := filepath.Join(above, "pod"+string(pod))
	check(t, os.Mkdir(dir, 0o755))
	t.Cleanup(func() {
		for _, d := range []string{dir, above} {
			if err := os.Remove(d); err != nil {
				t.Error(err)
			}
		}
	})
	w := newRights(t, "0::/"+filepath.Base(above)+"/pod"+string(pod)+"\n")
	check(t, os.Symlink(mount, filepath.Join(w.host, "sys/fs/cgroup")))
	group, err := os.Open(dir)
	check(t, err)
	defer group.Close()
	if err := addFilter(group, defaultRules()); err != nil {
		t.Skipf("BPF is not to be had here: %v", err)
	}
	// Devices that can be opened everywhere stand for disks: kmsg for the node's, port for one that a plugin has, mem
	// for a hotplugged one.
	kmsg, granted, plugged := Char(unix.Mkdev(1, 11)), Char(unix.Mkdev(10, 229)), Char(unix.Mkdev(10, 237))
	w.mknod(t, "/dev/granted", granted)
	w.record(t, granting(t, pod, names.ContainerCompute, device("/dev/granted", "rw")))
	may := func(d Device) bool {
		t.Helper()
		node := filepath.Join(w.root, "dev", fmt.Sprint(unix.Minor(d.Number)))
		if err := unix.Mknod(node, d.Kind|0o600, int(d.Number)); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
		out, err := exec.Command("sh",
			"-c", fmt.Sprintf("echo $$ > %s/cgroup.procs; exec 3<%s", dir, node)).CombinedOutput()
		if err == nil || strings.Contains(string(out), "No such device") {
			// nobody has such a device here, but they may ask
			return true
		}
		if !strings.Contains(string(out), "not permitted") {
			t.Fatalf("open %v: %v: %s", d, err, out)
		}
		return false
	}
	want := func(when string, wanted map[Device]bool) {
		t.Helper()
		for d, ok := range wanted {
			if got := may(d); got != ok {
				t.Errorf("%s: %v may be used: %t", when, d, got)
			}
		}
	}
	zero := Char(unix.Mkdev(1, 5))
	want("at first", map[Device]bool{zero: true, kmsg: false, granted: false, plugged: false})
	check(t, w.rights.Allow(w.p, "volume/a", plugged))
	want("plugged in", map[Device]bool{zero: true, kmsg: false, granted: true, plugged: true})
	next := &Rights{Proc: w.proc, Pods: w.pods, Plugins: w.plugins, Dir: w.rights.Dir}
	check(t, next.Allow(w.p, "volume/b", Block(unix.Mkdev(7, 250))))
	want("another one, by the next virt-handler",
		map[Device]bool{zero: true, kmsg: false, granted: true, plugged: true})
	check(t, next.Deny(w.p, "volume/a"))
	want("unplugged", map[Device]bool{zero: true, kmsg: false, granted: true, plugged: false})
}

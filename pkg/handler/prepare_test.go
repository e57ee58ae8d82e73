package handler

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/handler/capabilities"
	"github.com/virtkit/virtkit/pkg/handler/podfs"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/network"
)

// podNetns makes a network namespace with an eth0 as a CNI plugin leaves it.
func podNetns(t *testing.T) *os.File {
	t.Helper()
	type result struct {
		ns  *os.File
		err error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		build := func() (*os.File, error) {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return nil, err
			}
			attrs := netlink.NewLinkAttrs()
			attrs.Name, attrs.MTU = "eth0", 1450
			eth0 := &netlink.Veth{LinkAttrs: attrs, PeerName: "host"}
			if err := netlink.LinkAdd(eth0); err != nil {
				return nil, err
			}
			address, err := netlink.ParseAddr("10.42.1.5/24")
			if err != nil {
				return nil, err
			}
			if err := netlink.AddrAdd(eth0, address); err != nil {
				return nil, err
			}
			if err := netlink.LinkSetUp(eth0); err != nil {
				return nil, err
			}
			if err := netlink.RouteAdd(&netlink.Route{Gw: netip.MustParseAddr("10.42.1.1").AsSlice()}); err != nil {
				return nil, err
			}
			return os.Open("/proc/thread-self/ns/net")
		}
		ns, err := build()
		done <- result{ns, err}
	}()
	r := <-done
	if r.err != nil {
		t.Fatalf("make the pod's network namespace (run as root): %v", r.err)
	}
	t.Cleanup(func() { r.ns.Close() })
	return r.ns
}

func TestPodIsPrepared(t *testing.T) {
	for _, binding := range []network.Binding{network.Masquerade, network.Bridge} {
		t.Run(string(binding), func(t *testing.T) { testPodIsPrepared(t, binding) })
	}
}

func testPodIsPrepared(t *testing.T, binding network.Binding) {
	vmi := newVMI()
	nic := v1.Interface{Name: "default"}
	if binding == network.Masquerade {
		nic.Masquerade = &v1.InterfaceMasquerade{}
	} else {
		nic.Bridge = &v1.InterfaceBridge{}
	}
	vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{nic}
	vmi.Spec.Networks = []v1.Network{{Name: "default", NetworkSource: v1.NetworkSource{Pod: &v1.PodNetwork{}}}}
	w := newWorld(t, vmi, newPod())
	ns := podNetns(t)
	link := filepath.Join(w.proc, "ns/net")
	w.must(os.Remove(link))
	w.must(os.Symlink(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.Fd()), link))
	w.startLauncher()
	first := w.startHandler()
	got := w.eventuallyPhase(v1.Running)
	if len(got.Status.Interfaces) != 1 || got.Status.Interfaces[0].IP != "10.42.1.5" {
		t.Errorf("interfaces %+v", got.Status.Interfaces)
	}
	if _, err := os.Lstat(w.rootfs + "/dev/net/tun"); err != nil {
		t.Errorf("no tun device: %v", err)
	}

	// The next virt-handler finds what the first has left, though the pod's link has changed since.
	first.stop()
	w.startHandler()
	w.eventually("it is attached to again", func() bool { starts, _ := w.launcher.counts(); return starts == 2 })
	w.launcher.mu.Lock()
	defer w.launcher.mu.Unlock()
	var plans [2]network.Plan
	for i := range plans {
		w.must(json.Unmarshal(w.launcher.starts[i].NetworkPlanJson, &plans[i]))
	}
	a, b := string(w.launcher.starts[0].NetworkPlanJson), string(w.launcher.starts[1].NetworkPlanJson)
	if a != b || plans[0].Interfaces[0].Binding != binding {
		t.Errorf("the plan changed:\n%s\n%s", a, b)
	}
}

// capabilityFile is as libvirt names one.
const capabilityFile = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef.xml"

// capabilityFiles are about the QEMU in the launcher's image.
func (w *world) capabilityFiles(content string) map[string][]byte {
	w.t.Helper()
	var stat unix.Stat_t
	w.must(unix.Stat(w.rootfs+"/usr/bin/qemu-system-x86_64", &stat))
	const format = "<qemuCaps><qemuctime>%d</qemuctime><flag name='%s'/></qemuCaps>"
	return map[string][]byte{capabilityFile: fmt.Appendf(nil, format, stat.Ctim.Sec, content)}
}

// key is that of the launcher's image as the node sees it.
func (w *world) key() capabilities.Key {
	w.t.Helper()
	key, err := capabilities.NewKey(capabilities.Variant{}, func(name string) (stat unix.Stat_t, err error) {
		return stat, unix.Stat(w.rootfs+name, &stat)
	})
	w.must(err)
	return key
}

// A launcher that a guest has taken over offers libvirt's files, which say what every later QEMU of the node can do and
// is started with. They stay its own.
func TestLauncherCapabilitiesAreNotTaken(t *testing.T) {
	w := newWorld(t)
	w.startLauncher()
	cache := filepath.Join(podfs.RunPath(w.node.PodsDir, podUID), names.CapabilityCacheDir)
	w.must(os.MkdirAll(cache, 0o700))
	for name, data := range w.capabilityFiles("forged") {
		w.must(os.WriteFile(filepath.Join(cache, name), data, 0o600))
	}
	h := w.startHandler()
	w.eventuallyPhase(v1.Running)
	w.launcher.lifecycle(launcherpb.Lifecycle_LIFECYCLE_SHUTOFF, "shutdown")
	w.eventuallyPhase(v1.Succeeded)
	h.stop()
	state := filepath.Dir(w.node.Capabilities.Dir)
	err := filepath.WalkDir(state, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(name, ".xml") {
			t.Errorf("the node has kept %s", name)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	next, err := os.OpenRoot(t.TempDir())
	w.must(err)
	defer next.Close()
	if there, err := w.node.Capabilities.Install(w.key(), next); there || err != nil {
		t.Errorf("the next launcher gets it: %v, %v", there, err)
	}
}

// What an earlier version has taken from launchers is of no more use to anybody.
func TestHarvestedCapabilitiesAreForgotten(t *testing.T) {
	w := newWorld(t)
	old := filepath.Join(filepath.Dir(w.node.Capabilities.Dir), "capabilities", w.node.Capabilities.Boot, "key")
	w.must(os.MkdirAll(old, 0o700))
	w.must(os.WriteFile(filepath.Join(old, capabilityFile), nil, 0o600))
	w.must(w.node.forgetHarvested())
	if _, err := os.Lstat(old); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
	w.must(w.node.forgetHarvested())
}

// The node's own files reach the launcher, and before it is told to start the guest.
func TestLauncherIsWarm(t *testing.T) {
	w := newWorld(t)
	w.must(w.node.Capabilities.Store(w.key(), w.capabilityFiles("probed")))
	w.startLauncher()
	w.startHandler()
	w.eventuallyPhase(v1.Running)
	cache := filepath.Join(podfs.RunPath(w.node.PodsDir, podUID), names.CapabilityCacheDir)
	got, err := os.ReadFile(filepath.Join(cache, capabilityFile))
	if want := w.capabilityFiles("probed")[capabilityFile]; err != nil || !bytes.Equal(got, want) {
		t.Errorf("the launcher has %q, %v; want %q", got, err, want)
	}
}

func TestVariants(t *testing.T) {
	type variant = capabilities.Variant
	for _, test := range []struct {
		name                    string
		kvm, sev, withEmulation bool
		want                    []variant
	}{
		{"emulation", false, false, false, []variant{{}}},
		{"KVM", true, false, false, []variant{{KVM: true}}},
		{"SEV", true, true, false, []variant{{KVM: true}, {KVM: true, SEV: true}}},
		{"SEV without KVM", false, true, false, []variant{{}}},
		{"KVM that is not to be used", true, true, true, []variant{{}}},
	} {
		if got := variants(test.kvm, test.sev, test.withEmulation); !slices.Equal(got, test.want) {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
}

func TestOldPlansAreForgotten(t *testing.T) {
	w := newWorld(t)
	w.must(w.node.plans.Save("gone", &network.Plan{}))
	w.must(w.node.plans.Save(podUID, &network.Plan{}))
	w.must(os.MkdirAll(podfs.RunPath(w.node.PodsDir, podUID), 0o755))
	w.must(w.node.forgetOldPods())
	if p, err := w.node.plans.Load("gone"); p != nil || err != nil {
		t.Errorf("kept %v, %v", p, err)
	}
	if p, err := w.node.plans.Load(podUID); p == nil || err != nil {
		t.Errorf("lost %v, %v", p, err)
	}
}

func TestVMIGoneEndsSession(t *testing.T) {
	w := newWorld(t)
	w.startLauncher()
	h := w.startHandler()
	w.eventuallyPhase(v1.Running)
	w.launcher.lifecycle(launcherpb.Lifecycle_LIFECYCLE_SHUTOFF, "shutdown")
	w.eventuallyPhase(v1.Succeeded)
	vmi := w.vmi()
	vmi.Finalizers = nil
	w.must(w.client.Update(t.Context(), vmi))
	w.must(w.client.Delete(t.Context(), vmi))
	h.kick()
	w.eventually("the session ends", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.sessions) == 0
	})
	w.eventually("its plan is forgotten", func() bool {
		p, err := w.node.plans.Load(podUID)
		w.must(err)
		return p == nil
	})
}

// Whether guests may send as others is asked of their own namespace, and an error is no leave.
func TestSpoofingAsksTheNamespace(t *testing.T) {
	labelled := func(name, value string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{network.AllowSpoofing: value},
		}}
	}
	ask := spoofing(fake.NewClientset(labelled("open", "true"), labelled("closed", "no"), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: "plain", Annotations: map[string]string{network.AllowSpoofing: "true"}},
	}))
	for name, want := range map[string]bool{"open": true, "closed": false, "plain": false} {
		if may, err := ask(t.Context(), name); err != nil || may != want {
			t.Errorf("%s: %v, %v", name, may, err)
		}
	}
	if may, err := ask(t.Context(), "gone"); err == nil || may {
		t.Errorf("a namespace that is not there: %v, %v", may, err)
	}
}

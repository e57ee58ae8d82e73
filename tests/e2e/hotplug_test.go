//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/names"
)

// Three volumes are plugged in at once, and taken away at once, while each component in turn is killed: what one has
// begun the next one ends, and nothing is plugged in twice or left behind. With -long all of it comes once more;
// TestHotplug plugs a volume in that was taken away.
func TestHotplugFaults(t *testing.T) {
	skipInShort(t)
	c := theCluster
	ns := c.namespace(t, "restricted")
	volumes := []string{"one", "two", "three"}
	for i, volume := range volumes {
		mode := corev1.PersistentVolumeFilesystem
		if i == 1 {
			mode = corev1.PersistentVolumeBlock
		}
		c.claim(t, ns, volume, mode)
	}
	g := c.create(t, newVM(ns, "plug", v1.RunStrategyAlways))
	g.waitLogin(t)
	first := g.pod(t).UID
	con := g.shell(t, "")
	all := func(verb string) {
		t.Helper()
		var working sync.WaitGroup
		for _, volume := range volumes {
			working.Go(func() {
				// virt-api may be killed over it; a client asks again, and then it may have been done.
				for deadline := time.Now().Add(time.Minute); ; {
					stdout, stderr, err := c.Virtctl(t.Context(), nil, "-n", ns, verb, g.name, "--volume-name="+volume)
					spec := g.vmi(t).Spec.Volumes
					has := slices.ContainsFunc(spec, func(v v1.Volume) bool { return v.Name == volume })
					if has == (verb == "addvolume") {
						return
					}
					if time.Now().After(deadline) {
						t.Errorf("%s %s: %v\n%s%s", verb, volume, err, stdout, stderr)
						return
					}
				}
			})
		}
		killed := map[types.UID]bool{}
		for _, component := range components {
			for _, pod := range c.componentPods(t, component) {
				killed[pod.UID] = true
			}
			pods := []client.DeleteAllOfOption{
				client.InNamespace(names.Namespace),
				client.MatchingLabels{names.LabelComponent: component},
				client.GracePeriodSeconds(0),
			}
			if err := c.Client.DeleteAllOf(t.Context(), &corev1.Pod{}, pods...); err != nil {
				t.Error(err)
			}
		}
		working.Wait()
		c.waitComponents(t, ns, killed)
	}
	rounds := 1
	if *long {
		rounds = 2
	}
	for range rounds {
		all("addvolume")
		eventually(t, 2*time.Minute, "all volumes are ready", func() string {
			ready := 0
			vmi := g.vmi(t)
			for _, s := range vmi.Status.VolumeStatus {
				if s.HotplugVolume != nil && s.Phase == v1.VolumeReady {
					ready++
				}
			}
			if ready != len(volumes) {
				return fmt.Sprintf("%+v", vmi.Status.VolumeStatus)
			}
			return ""
		})
		con = g.again(t)
		for _, volume := range volumes {
			eventually(t, 30*time.Second, "the guest sees volume "+volume, func() string {
				if got := con.run(t, "echo "+scsiDisk(volume)); len(got) != len("/dev/sda") {
					return fmt.Sprintf("as %q", got)
				}
				return ""
			})
		}
		g.waitAttachments(t, len(volumes))
		all("removevolume")
		g.waitAttachments(t, 0)
		con = g.again(t)
		expectText(t, con, "ls /sys/block | grep -c ^sd", "0")
	}
	if pod := g.pod(t); pod.UID != first {
		t.Error("the guest is in another pod")
	}
}

var components = []string{names.VirtController, names.VirtHandler, names.VirtAPI}

// waitComponents waits until the pods that came for killed ones are ready, and virt-api is found by the API server.
func (c *cluster) waitComponents(t *testing.T, ns string, killed map[types.UID]bool) {
	t.Helper()
	eventually(t, 2*time.Minute, "the components are back", func() string {
		pods, err := c.Kube.CoreV1().Pods(names.Namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		ready := 0
		for _, pod := range pods.Items {
			if slices.Contains(components, pod.Labels[names.LabelComponent]) && !killed[pod.UID] && podReady(&pod) {
				ready++
			}
		}
		if ready < len(killed) {
			return fmt.Sprintf("%d of %d pods are ready", ready, len(killed))
		}
		vm := newVM(ns, "probe", v1.RunStrategyHalted)
		if err := c.Client.Create(t.Context(), vm, client.DryRunAll); err != nil {
			return err.Error()
		}
		if _, stderr, err := c.Virtctl(t.Context(), nil, "version"); err != nil {
			return instead(stderr)
		}
		return ""
	})
}

func podReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// scsiDisk is a shell's way to the scsi disk with a serial number; empty while the guest has none.
func scsiDisk(serial string) string {
	return fmt.Sprintf(`$(for d in /sys/block/sd*; do grep -qs %s $d/device/vpd_pg80 && echo /dev/${d##*/}; done)`,
		serial)
}

// lacks waits until the guest has noticed that a disk is gone, which it is told of when QEMU has let it go.
func lacks(t *testing.T, con *console, serial string) {
	t.Helper()
	eventually(t, 30*time.Second, "the guest lacks "+serial, func() string {
		if got := con.run(t, "echo "+scsiDisk(serial)); got != "" {
			return "it has " + got
		}
		return ""
	})
}

// A volume of each mode is plugged into a running guest, survives virt-handler's restart, holds what the guest
// wrote when it is plugged in again, and comes back after a restart of the VM when it was persisted. Nothing runs
// beside it: virt-handler's end breaks consoles.
func TestHotplug(t *testing.T) {
	c := theCluster
	ns := c.namespace(t, "restricted")
	c.claim(t, ns, "files", corev1.PersistentVolumeFilesystem)
	c.claim(t, ns, "device", corev1.PersistentVolumeBlock)
	g := c.create(t, newVM(ns, "plug", v1.RunStrategyAlways))
	g.waitLogin(t)
	con := g.openConsole(t, "")
	con.login(t, "root", "tiny")

	add := func(to, volume string) {
		t.Helper()
		g.virtctl(t, nil, "-n", ns, "addvolume", to, "--volume-name="+volume, "--wait", "--timeout=90s")
	}
	remove := func(volume string) {
		t.Helper()
		g.virtctl(t, nil, "-n", ns, "removevolume", g.name, "--volume-name="+volume, "--wait", "--timeout=90s")
	}
	see := func(con *console, volume string) {
		t.Helper()
		eventually(t, 30*time.Second, "the guest sees "+volume, func() string {
			if con.run(t, "echo "+scsiDisk(volume)) == "" {
				return "no such disk"
			}
			return ""
		})
	}
	add("vmi/"+g.name, "files")
	add("vmi/"+g.name, "device")
	for _, volume := range []string{"files", "device"} {
		see(con, volume)
		con.run(t, "echo kept-"+volume+" | dd of="+scsiDisk(volume)+" bs=512 count=1 conv=sync 2>/dev/null; sync")
	}
	inNamespace := []client.ListOption{
		client.InNamespace(ns), client.MatchingLabels{names.LabelComponent: names.HotplugDisk},
	}
	// One whose name could not be written, since another wrote first, is made again, and the first goes.
	eventually(t, 30*time.Second, "one attachment pod a volume", func() string {
		var attachments corev1.PodList
		if err := c.Client.List(t.Context(), &attachments, inNamespace...); err != nil {
			t.Fatal(err)
		}
		if n := len(attachments.Items); n != 2 {
			return fmt.Sprintf("%d pods", n)
		}
		return ""
	})

	// What virt-handler does not remember it finds.
	handlers := []client.DeleteAllOfOption{
		client.InNamespace(names.Namespace), client.MatchingLabels{names.LabelComponent: names.VirtHandler},
	}
	if err := c.Client.DeleteAllOf(t.Context(), &corev1.Pod{}, handlers...); err != nil {
		t.Fatal(err)
	}
	remove("device")
	con = g.openConsole(t, "") // whose shell is still logged in
	lacks(t, con, "device")
	add(g.name, "device")
	see(con, "device")
	if got := con.run(t, "dd if="+scsiDisk("device")+" bs=11 count=1 2>/dev/null"); got != "kept-device" {
		t.Errorf("plugged in again, the device holds %q", got)
	}

	first := g.vmi(t).UID
	g.virtctl(t, nil, "-n", ns, "restart", g.name, "--force", "--grace-period=0")
	eventually(t, bootTime, "the VM's volume is back", func() string {
		vmi := g.vmi(t)
		if vmi == nil || vmi.UID == first {
			return "no new instance"
		}
		for _, s := range vmi.Status.VolumeStatus {
			if s.Name == "files" {
				t.Fatal("a volume of the last instance is back")
			}
			if s.Name == "device" && s.Phase == v1.VolumeReady {
				return ""
			}
		}
		return fmt.Sprintf("%+v", vmi.Status.VolumeStatus)
	})
	add("vmi/"+g.name, "files")
	g.waitLogin(t)
	con = g.openConsole(t, "")
	con.login(t, "root", "tiny")
	see(con, "files")
	if got := con.run(t, "dd if="+scsiDisk("files")+" bs=10 count=1 2>/dev/null"); got != "kept-files" {
		t.Errorf("plugged in again, the file holds %q", got)
	}
	remove("device")
	remove("files")
	eventually(t, 30*time.Second, "no attachment pod is left", func() string {
		var attachments corev1.PodList
		if err := c.Client.List(t.Context(), &attachments, inNamespace...); err != nil {
			return err.Error()
		}
		if n := len(attachments.Items); n != 0 {
			return fmt.Sprintf("%d pods, the first %s with deletionTimestamp %v", n, attachments.Items[0].Name,
				attachments.Items[0].DeletionTimestamp)
		}
		return ""
	})
}

// A claim that another guest writes is not plugged in: whoever waits for it learns whose it is, the status does not
// alternate, and the volume comes once the claim is free.
func TestHotplugOfHeldClaim(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	c.claim(t, ns, "data", corev1.PersistentVolumeFilesystem)
	holder := c.create(t, newVM(ns, "holder", v1.RunStrategyAlways))
	holder.waitLogin(t)
	holder.virtctl(t, nil, "-n", ns, "addvolume", "holder", "--volume-name=data", "--wait", "--timeout=90s")
	g := c.create(t, newVM(ns, "late", v1.RunStrategyAlways, func(vm *v1.VirtualMachine) {
		vm.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: holder.vmi(t).Status.NodeName}
	}))
	g.waitLogin(t)
	add := []string{"-n", ns, "addvolume", g.name, "--volume-name=data", "--wait", "--timeout=90s"}
	if _, stderr, err := g.Virtctl(t.Context(), nil, add...); err == nil ||
		!strings.Contains(stderr, "claim data is in use by holder") {
		t.Errorf("%v\n%s", err, stderr)
	}
	stdout, stderr, err := g.Virtctl(t.Context(), nil, "-n", ns, "why", g.name)
	if err == nil || !strings.Contains(stdout, `volume "data" is not attached`) {
		t.Errorf("why: %v\n%s%s", err, stdout, stderr)
	}
	holder.virtctl(t, nil, "-n", ns, "removevolume", "holder", "--volume-name=data", "--wait", "--timeout=90s")
	eventually(t, time.Minute, "the volume comes", func() string {
		for _, s := range g.vmi(t).Status.VolumeStatus {
			if s.Name == "data" && s.Phase == v1.VolumeReady {
				return ""
			}
		}
		return "it is not ready"
	})
}

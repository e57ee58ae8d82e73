//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

// A guest's agent tells who is logged in and what is mounted, and freezes the guest until it is let go, or nobody does
// in time; the guest is found by its name, and reboots when it is asked to.
func TestGuestAgent(t *testing.T) {
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "farm"},
		Spec:       corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"app": "asked"}},
	}
	if err := c.Client.Create(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	g := c.create(t,
		newVM(ns, "asked", v1.RunStrategyAlways, withUserData("#cloud-config\nuser: root\npassword: tiny\n"),
			withEmptyDisk(), func(vm *v1.VirtualMachine) {
				vm.Spec.Template.Spec.Hostname, vm.Spec.Template.Spec.Subdomain = "web", "farm"
			}))
	if got := g.in(t, "hostname"); got != "web" {
		t.Errorf("the guest's host name is %q", got)
	}
	if pod := g.pod(t); pod.Spec.Hostname != "web" || pod.Spec.Subdomain != "farm" {
		t.Errorf("the pod is %s.%s", pod.Spec.Hostname, pod.Spec.Subdomain)
	}
	con := g.openConsole(t, "")
	con.login(t, "root", "tiny")
	path := fmt.Sprintf("/apis/subresources.kubevirt.io/v1/namespaces/%s/virtualmachineinstances/%s/", ns, g.name)
	ask := func(verb, what, body string, into any) {
		t.Helper()
		request := c.Kube.CoreV1().RESTClient().Verb(verb).AbsPath(path + what)
		if body != "" {
			request = request.Body([]byte(body))
		}
		data, err := request.Do(t.Context()).Raw()
		if err == nil && into != nil {
			err = json.Unmarshal(data, into)
		}
		if err != nil {
			t.Fatalf("%s %s: %v", verb, what, err)
		}
	}
	var users v1.VirtualMachineInstanceGuestOSUserList
	ask(http.MethodGet, "userlist", "", &users)
	if !slices.ContainsFunc(users.Items, func(u v1.VirtualMachineInstanceGuestOSUser) bool {
		return u.UserName == "root" && u.LoginTime > 0
	}) {
		t.Errorf("users %+v", users.Items)
	}
	var info v1.VirtualMachineInstanceGuestAgentInfo
	ask(http.MethodGet, "guestosinfo", "", &info)
	if info.Hostname != "web" || info.GAVersion == "" ||
		!slices.ContainsFunc(info.SupportedCommands, func(c v1.GuestAgentCommandInfo) bool {
			return c.Name == "guest-ping"
		}) {
		t.Errorf("guestosinfo %+v", info)
	}
	for _, condition := range g.vmi(t).Status.Conditions {
		if condition.Type == v1.VirtualMachineInstanceUnsupportedAgent {
			t.Errorf("Debian's own agent is not supported: %s", condition.Message)
		}
	}

	// The tiny guest lives in memory, which cannot be frozen.
	g.in(t, "sh",
		"-c",
		`for d in /sys/block/vd*; do [ "$(cat $d/serial)" = EMPTY ] && ! grep -q " /mnt " /proc/mounts && mke2fs /dev/${d##*/} && mount /dev/${d##*/} /mnt; done; grep " /mnt " /proc/mounts`)
	var systems v1.VirtualMachineInstanceFileSystemList
	ask(http.MethodGet, "filesystemlist", "", &systems)
	if !slices.ContainsFunc(systems.Items, func(f v1.VirtualMachineInstanceFileSystem) bool {
		return f.MountPoint == "/mnt" &&
			slices.ContainsFunc(f.Disk, func(d v1.VirtualMachineInstanceFileSystemDisk) bool {
				return d.BusType == "virtio"
			})
	}) {
		t.Errorf("file systems %+v", systems.Items)
	}
	frozen := func(want bool) {
		t.Helper()
		eventually(t, 30*time.Second, fmt.Sprintf("status says frozen: %t", want), func() string {
			if got := g.vmi(t).Status.FSFreezeStatus == "frozen"; got != want {
				return "it does not"
			}
			return ""
		})
	}
	ask(http.MethodPut, "freeze", `{"unfreezeTimeout": "10m"}`, nil)
	frozen(true)
	for _, condition := range g.vmi(t).Status.Conditions {
		if condition.Type == v1.VirtualMachineInstanceUnsupportedAgent {
			t.Errorf("the agent of a frozen guest is not supported: %s", condition.Message)
		}
	}
	ask(http.MethodPut, "unfreeze", "", nil)
	frozen(false)
	g.runHook(t, "pre")
	frozen(true)
	g.runHook(t, "post")
	frozen(false)
	ask(http.MethodPut, "freeze", `{"unfreezeTimeout": "2s"}`, nil)
	frozen(false)

	const bootID = "/proc/sys/kernel/random/boot_id"
	before, pod := g.in(t, "cat", bootID), g.pod(t).UID
	ask(http.MethodPut, "softreboot", "", nil)
	eventually(t, bootTime, "the guest has booted again", func() string {
		if after := g.in(t, "cat", bootID); after == before || strings.TrimSpace(after) == "" {
			return "not yet"
		}
		return ""
	})
	if g.pod(t).UID != pod {
		t.Error("it boots in another pod")
	}
}

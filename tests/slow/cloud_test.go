//go:build slow

package slow

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

// A cloud image does what cloud-init is told, is reached over ssh, gets keys and passwords by its agent, also new ones
// while it runs, tells of itself, freezes, reboots and moves.
func TestCloudImage(t *testing.T) {
	dir := t.TempDir()
	boot, bootPublic := newKey(t, dir, "boot")
	first, firstPublic := newKey(t, dir, "first")
	second, secondPublic := newKey(t, dir, "second")
	ns := namespace(t, map[string]map[string]string{
		"boot-keys": {"key": bootPublic}, "keys": {"key": firstPublic}, "passwords": {"crew": "port"},
	})
	g := create(t, ns, "cloud.yaml", dir)

	// cloud-init, with the key of the default user from accessCredentials.
	g.booted(t, boot)
	g.expect(t, "debian", boot, map[string]string{
		"hostname":                                   "harbour",
		"sudo cat /etc/bearing":                      "north by east",
		"stat -c %a /etc/bearing":                    "640",
		"cat /srv/runcmd":                            "ran",
		"findmnt -no LABEL /srv":                     "cargo",
		"timedatectl show -p Timezone --value":       "Europe/Vienna",
		"systemctl is-system-running --wait || true": "running",
		"cloud-id":                                   "nocloud",
	})

	t.Run("agent", func(t *testing.T) { testAgentReport(t, g) })
	t.Run("credentials", func(t *testing.T) { credentials(t, g, first, second, secondPublic) })
	t.Run("freeze", func(t *testing.T) { freezes(t, g, boot) })
	t.Run("softreboot", func(t *testing.T) { reboots(t, g, boot, second) })
	t.Run("migration", func(t *testing.T) { moves(t, g, boot) })
}

// testAgentReport checks what the guest agent says, and where it is shown.
func testAgentReport(t *testing.T, g *guest) {
	var info v1.VirtualMachineInstanceGuestAgentInfo
	if err := g.subresource(t, http.MethodGet, "guestosinfo", "", &info); err != nil {
		t.Fatal(err)
	}
	if info.Hostname != "harbour" || info.OS.ID != "debian" || info.OS.VersionID != "13" ||
		!strings.HasPrefix(info.Timezone, "CE") || info.GAVersion == "" ||
		!slices.ContainsFunc(info.SupportedCommands, func(c v1.GuestAgentCommandInfo) bool {
			return c.Name == "guest-exec" && c.Enabled
		}) {
		t.Errorf("guestosinfo %+v", info)
	}
	var systems v1.VirtualMachineInstanceFileSystemList
	if err := g.subresource(t, http.MethodGet, "filesystemlist", "", &systems); err != nil {
		t.Fatal(err)
	}
	for _, want := range []v1.VirtualMachineInstanceFileSystem{
		{
			MountPoint: "/", FileSystemType: "ext4",
			Disk: []v1.VirtualMachineInstanceFileSystemDisk{{Serial: "ROOT", BusType: "virtio"}},
		},
		{
			MountPoint: "/srv", FileSystemType: "ext4",
			Disk: []v1.VirtualMachineInstanceFileSystemDisk{{Serial: "DATA", BusType: "virtio"}},
		},
	} {
		if !slices.ContainsFunc(systems.Items, func(f v1.VirtualMachineInstanceFileSystem) bool {
			return f.MountPoint == want.MountPoint && f.FileSystemType == want.FileSystemType && f.UsedBytes > 0 &&
				f.TotalBytes > f.UsedBytes &&
				slices.Equal(f.Disk, want.Disk)
		}) {
			t.Errorf("no %+v among the file systems %+v", want, systems.Items)
		}
	}
	eventually(t, time.Minute, "status has what the agent says", func() string {
		vmi := g.vmi(t)
		if os := vmi.Status.GuestOSInfo; os.ID != "debian" || !strings.Contains(os.PrettyName, "trixie") {
			return "guestOSInfo " + os.PrettyName
		}
		if len(vmi.Status.Interfaces) != 1 {
			return "not one interface"
		}
		link := vmi.Status.Interfaces[0]
		if !strings.HasPrefix(link.InterfaceName, "en") || link.InfoSource != "domain, guest-agent" || link.IP == "" ||
			!slices.Contains(link.IPs, link.IP) ||
			link.QueueCount != 1 || link.MAC == "" {
			return "interface is not as expected"
		}
		return ""
	})
	t.Logf("interfaces %+v", g.vmi(t).Status.Interfaces)
	if out := g.virtctl(t, "exec", "--", "cat", "/proc/1/comm"); strings.TrimSpace(out) != "systemd" {
		t.Errorf("exec: process 1 is %q", out)
	}
}

// credentials checks that the agent's users are as the Secrets say, also when these change.
func credentials(t *testing.T, g *guest, first, second, secondPublic string) {
	logsIn := func(key, password string) func() string {
		return func() string {
			// sudo asks for the password that the agent has set.
			if _, err := g.trySSH(t.Context(), "crew", key, password+"\n", "sudo -k -S -p '' true"); err != nil {
				return err.Error()
			}
			return ""
		}
	}
	eventually(t, time.Minute, "the first key and password", logsIn(first, "port"))
	if got := g.condition(t, v1.VirtualMachineInstanceAccessCredentialsSynchronized); got != corev1.ConditionTrue {
		t.Errorf("AccessCredentialsSynchronized is %q", got)
	}
	users := v1.VirtualMachineInstanceGuestOSUserList{}
	if err := g.subresource(t, http.MethodGet, "userlist", "", &users); err != nil {
		t.Error(err)
	}
	t.Logf("users %+v", users.Items)
	for name, data := range map[string]map[string]string{
		"keys":      {"key": secondPublic},
		"passwords": {"crew": "starboard"},
	} {
		secret, err := g.Kube.CoreV1().Secrets(g.ns).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		secret.Data, secret.StringData = nil, data
		if _, err := g.Kube.CoreV1().Secrets(g.ns).Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	// The kubelet takes its time.
	eventually(t, 4*time.Minute, "the second key and password", logsIn(second, "starboard"))
	if _, err := g.trySSH(t.Context(), "crew", first, "", "true"); err == nil {
		t.Error("the first key is still good")
	}
}

// freezes checks that file systems stand still until they are let go, or nobody does in time.
func freezes(t *testing.T, g *guest, key string) {
	frozen := func() bool { return g.vmi(t).Status.FSFreezeStatus == "frozen" }
	freeze := func(body string) {
		t.Helper()
		if err := g.subresource(t, http.MethodPut, "freeze", body, nil); err != nil {
			t.Fatalf("freeze %s: %v", body, err)
		}
		eventually(t, 30*time.Second, "status says frozen", func() string {
			if !frozen() {
				return "it does not"
			}
			return ""
		})
	}
	thawed := func() {
		t.Helper()
		eventually(t, 30*time.Second, "status says nothing of frozen", func() string {
			if frozen() {
				return "it does"
			}
			return ""
		})
		g.ssh(t, "debian", key, "sudo sh -c 'echo after > /srv/after && sync'")
	}
	freeze(`{"unfreezeTimeout": "10m"}`)
	if err := g.subresource(t, http.MethodPut, "unfreeze", "", nil); err != nil {
		t.Fatal(err)
	}
	thawed()
	freeze(`{"unfreezeTimeout": "3s"}`)
	thawed()
}

// reboots checks that the guest boots again in the same pod, and that its agent's users are as before.
func reboots(t *testing.T, g *guest, key, crew string) {
	const bootID = "cat /proc/sys/kernel/random/boot_id"
	before, pods := g.ssh(t, "debian", key, bootID), g.vmi(t).Status.ActivePods
	g.virtctl(t, "soft-reboot")
	eventually(t, bootTime, "the guest has booted again", func() string {
		after, err := g.trySSH(t.Context(), "debian", key, "", bootID)
		switch {
		case err != nil:
			return err.Error()
		case after == before:
			return "not yet"
		}
		return ""
	})
	g.virtctl(t, "wait", "--for=agent", "--timeout", bootTime.String())
	g.ssh(t, "crew", crew, "true")
	for uid := range g.vmi(t).Status.ActivePods {
		if _, same := pods[uid]; !same {
			t.Error("it boots in another pod")
		}
	}
}

// moves checks that the guest goes to the other node while it writes to memory and disk, and notices nothing.
func moves(t *testing.T, g *guest, key string) {
	const load = `sudo systemd-run --unit load --quiet sh -c '` +
		`dd if=/dev/urandom of=/dev/shm/ballast bs=1M count=32 2>/dev/null; n=0; while [ ! -e /run/enough ]; do n=$((n+1)); ` +
		`dd if=/dev/zero of=/dev/shm/ballast bs=64k seek=$((n % 512)) count=1 conv=notrunc 2>/dev/null; ` +
		`echo $n >> /srv/log; done; sync; seq $n | cmp - /srv/log && echo whole > /srv/verdict || echo torn > /srv/verdict'`
	const state = "cat /proc/sys/kernel/random/boot_id; systemctl is-active load"
	g.ssh(t, "debian", key, load)
	before, home := g.ssh(t, "debian", key, state), g.vmi(t).Status.NodeName
	began := time.Now()
	g.virtctl(t, "migrate", "--wait", "--timeout", "8m")
	t.Logf("moved in %v", time.Since(began))
	if away := g.vmi(t).Status.NodeName; away == home {
		t.Errorf("the guest is still on %s", home)
	}
	eventually(t, time.Minute, "ssh", func() string {
		after, err := g.trySSH(t.Context(), "debian", key, "", state)
		if err != nil {
			return err.Error()
		}
		if after != before {
			t.Errorf("the guest is not the same: %q, before %q", after, before)
		}
		return ""
	})
	g.ssh(t, "debian", key, "sudo touch /run/enough")
	eventually(t, time.Minute, "the log is whole", func() string {
		if got := g.ssh(t, "debian", key, "cat /srv/verdict || true"); got != "whole" {
			return got
		}
		return ""
	})
	eventually(t, time.Minute, "the agent is connected", func() string {
		if got := g.condition(t, v1.VirtualMachineInstanceAgentConnected); got != corev1.ConditionTrue {
			return "it is not"
		}
		return ""
	})
}

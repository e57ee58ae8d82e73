//go:build e2e

package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

// run runs a command in the pod as kubectl exec does, with variables of the image's environment.
func (p *pod) run(environment []string, command ...string) (string, error) {
	user := strconv.Itoa(names.User)
	enter := []string{
		"--target", strconv.Itoa(p.pid), "--mount", "--pid", "--net", "--ipc", "--root", "--wd=/",
		"--setuid", user, "--setgid", strconv.Itoa(names.Group),
	}
	cmd := exec.Command("nsenter", append(enter, command...)...)
	cmd.Env = environment
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// imageEnvironment is what the launcher's image says that everything in it has.
func imageEnvironment(t *testing.T) []string {
	t.Helper()
	if os.Getenv("VIRTKIT_LAUNCHER_ROOTFS") != "" {
		t.Skip("a root file system alone has no environment")
	}
	read := func(name string) []byte {
		out, err := exec.Command("tar", "-xOf", repository+"/bin/images/virt-launcher.tar", name).Output()
		if err != nil {
			t.Fatalf("read %s of the launcher image: %v", name, err)
		}
		return out
	}
	var manifest []struct{ Config string }
	if err := json.Unmarshal(read("manifest.json"), &manifest); err != nil || len(manifest) != 1 {
		t.Fatalf("the image's manifest: %+v, %v", manifest, err)
	}
	var image struct{ Config struct{ Env []string } }
	if err := json.Unmarshal(read(manifest[0].Config), &image); err != nil {
		t.Fatal(err)
	}
	return image.Config.Env
}

// virsh finds the guest where people look for it: without a URI, by that of a session, and by KubeVirt's socket.
func TestVirsh(t *testing.T) {
	p := newPod(t, tinyVMI("virsh"))
	if _, err := p.start(); err != nil {
		t.Fatal(err)
	}
	environment := imageEnvironment(t)
	for _, uri := range [][]string{
		nil,
		{"-c", "qemu:///session"},
		{"-c", "qemu+unix:///session?socket=/var/run/libvirt/virtqemud-sock"},
	} {
		command := append(append([]string{"virsh"}, uri...), "list", "--name")
		if got, err := p.run(environment, command...); err != nil || got != "default_virsh" {
			t.Errorf("%s: %q, %v", strings.Join(command, " "), got, err)
		}
	}
}

// A guest's clock in a named time zone has that zone's time.
func TestClockInTimezone(t *testing.T) {
	for zone, offset := range map[string]time.Duration{
		"Asia/Kathmandu": 5*time.Hour + 45*time.Minute,
		"US/Hawaii":      -10 * time.Hour, // an old name
	} {
		t.Run(zone, func(t *testing.T) {
			vmi := tinyVMI("clock")
			named := v1.ClockOffsetTimezone(zone)
			vmi.Spec.Domain.Clock = &v1.Clock{ClockOffset: v1.ClockOffset{Timezone: &named}}
			p := newPod(t, vmi)
			if _, err := p.start(); err != nil {
				t.Fatal(err)
			}
			out, err := p.run(imageEnvironment(t), "virsh", "qemu-monitor-command", "default_clock",
				`{"execute":"qom-get","arguments":{"path":"/machine","property":"rtc-time"}}`)
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			var reply struct {
				Return struct {
					Year  int `json:"tm_year"`
					Month int `json:"tm_mon"`
					Day   int `json:"tm_mday"`
					Hour  int `json:"tm_hour"`
					Min   int `json:"tm_min"`
					Sec   int `json:"tm_sec"`
				}
			}
			if err := json.Unmarshal([]byte(out), &reply); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			r := reply.Return
			got := time.Date(r.Year+1900, time.Month(r.Month+1), r.Day, r.Hour, r.Min, r.Sec, 0, time.UTC)
			want := time.Now().UTC().Add(offset)
			if off := got.Sub(want).Abs(); off > 2*time.Minute {
				t.Errorf("the guest's clock shows %v, not %v", got, want)
			}
		})
	}
}

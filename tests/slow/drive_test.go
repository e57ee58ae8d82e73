//go:build slow

package slow

import (
	"os"
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

const driveUserData = `#cloud-config
write_files:
- {path: /etc/bearing, content: "from the drive\n"}
`

// efiVariable is a variable of the firmware that its own name gives no meaning.
const efiVariable = "/sys/firmware/efi/efivars/Harbour-12345678-9abc-def0-1234-56789abcdef0"

// Secure boot starts a cloud image, cloud-init takes a config drive, and the firmware's variables outlive the guest.
func TestConfigDrive(t *testing.T) {
	dir := t.TempDir()
	key, public := newKey(t, dir, "boot")
	ns := namespace(t,
		map[string]map[string]string{"boot-keys": {"key": public}, "user-data": {"userdata": driveUserData}})
	g := create(t, ns, "drive.yaml", dir)
	g.booted(t, key)
	g.expect(t, "debian", key, map[string]string{
		"hostname":         "drive",
		"cat /etc/bearing": "from the drive",
		"cloud-id":         "configdrive",
		// The attributes come before a variable's value, four bytes.
		"od -An -tu1 -j4 /sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c": "1",
	})
	g.ssh(t, "debian", key, `printf '\007\000\000\000ahoy' | sudo tee `+efiVariable+" >/dev/null")

	// The guest shuts itself down, and what is on its root disk is gone with it.
	g.virtctl(t, "stop", "--wait", "--timeout", "3m")
	if err := os.Remove(g.knownHosts()); err != nil { // its host key was on that disk
		t.Fatal(err)
	}
	g.virtctl(t, "start")
	g.booted(t, key)
	g.expect(t, "debian", key, map[string]string{"tail -c4 " + efiVariable: "ahoy"})
	if phase := g.vmi(t).Status.Phase; phase != v1.Running {
		t.Errorf("phase %s", phase)
	}
}

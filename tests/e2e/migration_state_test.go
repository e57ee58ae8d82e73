//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/vmstate"
)

// tpm talks to the guest's TPM in its own words (TCG's "TPM 2.0 Library", part 3): nv define, nv write TEXT of 8 bytes,
// nv read.
const tpm = `nv() {
auth='\x40\x00\x00\x09\x00\x00\x00\x00\x00'; owner='\x40\x00\x00\x01'; index='\x01\x50\x00\x01'; a="\x00\x00\x00\x09$auth"
case $1 in
define) c="\x80\x02\x00\x00\x00\x2d\x00\x00\x01\x2a$owner$a\x00\x00\x00\x0e$index\x00\x0b\x02\x02\x00\x02\x00\x00\x00\x08";;
write) c="\x80\x02\x00\x00\x00\x2b\x00\x00\x01\x37$owner$index$a\x00\x08$2\x00\x00";;
read) c="\x80\x02\x00\x00\x00\x23\x00\x00\x01\x4e$owner$index$a\x00\x08\x00\x00";;
esac
exec 3<>/dev/tpm0; printf "$c" >&3; dd bs=4096 count=1 <&3 2>/dev/null >/tmp/answer; exec 3>&-
if [ $1 = read ]; then dd if=/tmp/answer bs=1 skip=16 count=8 2>/dev/null; else dd if=/tmp/answer bs=1 skip=6 count=4 2>/dev/null | hexdump -v -e '/1 "%02x"'; fi
}
variable=/sys/firmware/efi/efivars/VirtkitTest-7d1c1f3e-6b0a-4f0d-9d65-3b6f0f2c9a11
modprobe efivarfs 2>/dev/null; mount -t efivarfs none /sys/firmware/efi/efivars
`

// withFirmware gives a VM UEFI and a TPM, and the memory that takes.
func withFirmware(secureBoot, persistent bool) func(*v1.VirtualMachine) {
	return func(vm *v1.VirtualMachine) {
		spec := &vm.Spec.Template.Spec
		spec.Domain.Memory.Guest = ptr(resource.MustParse("256Mi"))
		spec.Domain.Firmware = &v1.Firmware{
			Bootloader: &v1.Bootloader{EFI: &v1.EFI{SecureBoot: &secureBoot, Persistent: &persistent}},
		}
		if secureBoot {
			spec.Domain.Features = &v1.Features{SMM: &v1.FeatureState{Enabled: ptr(true)}}
		}
		spec.Domain.Devices.TPM = &v1.TPMDevice{Persistent: &persistent}
	}
}

// shell logs in and runs the lines of a script in the guest.
func (g *guest) shell(t *testing.T, script string) *console {
	t.Helper()
	con := g.openConsole(t, "")
	con.login(t, "root", "tiny")
	for line := range strings.Lines(script) {
		con.send(t, strings.TrimSuffix(line, "\n")+"\r")
	}
	return con
}

// again is a console on the node that the guest is on now; its shell is still logged in.
func (g *guest) again(t *testing.T) *console {
	t.Helper()
	con := g.openConsole(t, "")
	con.send(t, "\r")
	con.expect(t, bootTime, shellPrompt)
	return con
}

// stateStorage names the class of claims for persistent state, so that VMs keep theirs when they move. It stays: others
// do not mind.
func (c *cluster) stateStorage(t *testing.T) {
	t.Helper()
	kv := &v1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: names.Namespace, Name: names.KubeVirt}}
	patch := client.RawPatch("application/merge-patch+json",
		[]byte(`{"spec":{"configuration":{"vmStateStorageClass":"local"}}}`))
	if err := c.Client.Patch(t.Context(), kv, patch); err != nil {
		t.Fatal(err)
	}
}

func expectText(t *testing.T, con *console, command, want string) {
	t.Helper()
	if got := con.run(t, command); got != want {
		t.Errorf("%s: %q, want %q", command, got, want)
	}
}

// stateClaims are those of persistent state in the VM's namespace, by name, with the value of the label that says
// whose.
func (g *guest) stateClaims(t *testing.T) map[string]string {
	t.Helper()
	var list corev1.PersistentVolumeClaimList
	if err := g.Client.List(t.Context(), &list, client.InNamespace(g.ns)); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for i := range list.Items {
		// Kubernetes keeps what is deleted as long as the completed pod that used it is there.
		if name := list.Items[i].Name; strings.HasPrefix(name, vmstate.Prefix) &&
			list.Items[i].DeletionTimestamp == nil {
			out[name] = list.Items[i].Labels[vmstate.Prefix]
		}
	}
	return out
}

// awaitStateClaim waits until a VM has one claim of state, and its instance says so, and gives the claim's name.
func (g *guest) awaitStateClaim(t *testing.T) string {
	t.Helper()
	var name string
	eventually(t, bootTime, "one claim has the state", func() string {
		claims := g.stateClaims(t)
		named := vmstate.Claim(g.vmi(t))
		if named == nil || len(claims) != 1 || claims[named.ClaimName] != g.name {
			return fmt.Sprintf("claims %v, the status names %+v", claims, named)
		}
		name = named.ClaimName
		return ""
	})
	return name
}

// The TPM and the EFI variables of a guest go with it when it moves, although their claim is of one node; persistent
// ones are there after a restart, too, and their claim goes with the VM.
func TestPersistentState(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	g := c.create(t,
		newVM(ns, "sealed", v1.RunStrategyAlways, withFirmware(true, true),
			withUserData("#cloud-config\nuser: root\npassword: tiny\n")))
	g.waitLogin(t)
	con := g.shell(t, tpm)
	expectText(t, con, "nv define", "00000000")
	expectText(t, con, "nv write sealed-1", "00000000")
	con.run(t, `printf '\7\0\0\0kept-1' > $variable`)
	first := g.vmi(t)
	claim := g.awaitStateClaim(t)

	// A migration that does not come about leaves the state where it is.
	nowhere := &v1.VirtualMachineInstanceMigration{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "nowhere"},
		Spec: v1.VirtualMachineInstanceMigrationSpec{
			VMIName: g.name, AddedNodeSelector: map[string]string{"virtkit.test/no-such-node": "true"},
		},
	}
	if err := g.Client.Create(t.Context(), nowhere); err != nil {
		t.Fatal(err)
	}
	eventually(t, bootTime, "the migration makes its claim", func() string {
		if claims := g.stateClaims(t); len(claims) != 2 {
			return fmt.Sprintf("claims %v", claims)
		}
		return ""
	})
	if err := g.Client.Delete(t.Context(), nowhere); err != nil {
		t.Fatal(err)
	}
	if now := g.awaitStateClaim(t); now != claim {
		t.Errorf("the state is on %s, was on %s", now, claim)
	}

	there := g.migrate(t, "there")
	g.waitMigration(t, there, v1.MigrationSucceeded)
	moved := g.awaitStateClaim(t)
	if ms := there.Status.MigrationState; ms.SourcePersistentStatePVCName != claim ||
		ms.TargetPersistentStatePVCName != moved || claim == moved {
		t.Errorf("the state moved from %s to %s; the migration says %+v", claim, moved, ms)
	}
	con = g.again(t)
	expectText(t, con, "nv read", "sealed-1")
	expectText(t, con, "tail -c6 $variable", "kept-1")
	expectText(t, con, "nv write sealed-2", "00000000")

	g.virtctl(t, nil, "-n", ns, "restart", g.name, "--wait", "--timeout=120s")
	if vmi := g.vmi(t); vmi == nil || vmi.UID == first.UID {
		t.Fatal("no new instance")
	}
	g.waitLogin(t)
	con = g.shell(t, tpm)
	expectText(t, con, "nv read", "sealed-2")
	expectText(t, con, "tail -c6 $variable", "kept-1")
	if now := g.awaitStateClaim(t); now != moved {
		t.Errorf("the state is on %s, was on %s", now, moved)
	}

	c.virtctl(t, nil, "-n", ns, "delete", "vm", g.name)
	eventually(t, bootTime, "the claim goes with the VM", func() string {
		if claims := g.stateClaims(t); len(claims) > 0 {
			return fmt.Sprintf("claims %v", claims)
		}
		return ""
	})

	// A claim that both nodes can use stays the VM's.
	c.stateStorage(t)
	shared := c.create(t, newVM(ns, "shared", v1.RunStrategyAlways, func(vm *v1.VirtualMachine) {
		vm.Spec.Template.Spec.Domain.Devices.TPM = &v1.TPMDevice{Persistent: ptr(true)}
	}, withUserData("#cloud-config\nuser: root\npassword: tiny\n")))
	shared.waitLogin(t)
	con = shared.shell(t, tpm)
	expectText(t, con, "nv define", "00000000")
	expectText(t, con, "nv write shared-1", "00000000")
	claim = shared.awaitStateClaim(t)
	shared.waitMigration(t, shared.migrate(t, "across"), v1.MigrationSucceeded)
	if now := shared.awaitStateClaim(t); now != claim {
		t.Errorf("the state is on %s, was on %s", now, claim)
	}
	expectText(t, shared.again(t), "nv read", "shared-1")
}

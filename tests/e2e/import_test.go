//go:build e2e

package e2e

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// An OVA in the shape of VMware's, with the small guest's disk as a stream-optimized VMDK on an LSI controller, becomes
// a VM that boots from it.
func TestImportOVA(t *testing.T) {
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	directory := t.TempDir()
	vmdk := filepath.Join(directory, "tiny-disk1.vmdk")
	if out, err := exec.Command("qemu-img", "convert", "-O", "vmdk", "-o", "subformat=streamOptimized", tinyDisk,
		vmdk).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	disk, err := os.ReadFile(vmdk)
	if err != nil {
		t.Fatal(err)
	}
	const ovf = `<Envelope
 xmlns="http://schemas.dmtf.org/ovf/envelope/1" xmlns:ovf="http://schemas.dmtf.org/ovf/envelope/1"
 xmlns:rasd="http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_ResourceAllocationSettingData">
<References><File ovf:href="tiny-disk1.vmdk" ovf:id="file1"/></References>
<DiskSection><Disk ovf:capacity="1" ovf:capacityAllocationUnits="byte * 2^30" ovf:diskId="vmdisk1" ovf:fileRef="file1"/>
</DiskSection>
<VirtualSystem ovf:id="tiny"><Name>Tiny Guest</Name><VirtualHardwareSection>
<Item><rasd:InstanceID>1</rasd:InstanceID><rasd:ResourceType>3</rasd:ResourceType>
<rasd:VirtualQuantity>1</rasd:VirtualQuantity></Item>
<Item><rasd:AllocationUnits>byte * 2^20</rasd:AllocationUnits><rasd:InstanceID>2</rasd:InstanceID>
<rasd:ResourceType>4</rasd:ResourceType><rasd:VirtualQuantity>128</rasd:VirtualQuantity></Item>
<Item><rasd:Address>0</rasd:Address><rasd:InstanceID>3</rasd:InstanceID>
<rasd:ResourceSubType>lsilogic</rasd:ResourceSubType><rasd:ResourceType>6</rasd:ResourceType></Item>
<Item><rasd:AddressOnParent>0</rasd:AddressOnParent><rasd:HostResource>ovf:/disk/vmdisk1</rasd:HostResource>
<rasd:InstanceID>4</rasd:InstanceID><rasd:Parent>3</rasd:Parent><rasd:ResourceType>17</rasd:ResourceType></Item>
<Item><rasd:Connection>VM Network</rasd:Connection><rasd:InstanceID>5</rasd:InstanceID>
<rasd:ResourceSubType>VmxNet3</rasd:ResourceSubType><rasd:ResourceType>10</rasd:ResourceType></Item>
</VirtualHardwareSection></VirtualSystem></Envelope>`
	manifest := fmt.Sprintf("SHA256(tiny.ovf)= %x\nSHA256(tiny-disk1.vmdk)= %x\n", sha256.Sum256([]byte(ovf)),
		sha256.Sum256(disk))
	ova := filepath.Join(directory, "tiny.ova")
	packOVA(t, ova, "tiny.ovf", []byte(ovf), "tiny.mf", []byte(manifest), "tiny-disk1.vmdk", disk)

	c.virtctl(t, nil, "-n", ns, "import", ova, "--disk-bus=virtio", "--start")
	(&guest{cluster: c, ns: ns, name: "tiny-guest"}).waitLogin(t)
}

// TestImportRaw: the claim that is made for a raw disk has room for it, whatever its file system needs for itself.
func TestImportRaw(t *testing.T) {
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	for _, mebibytes := range []int64{10, 330} { // an ext4 and an XFS
		name := fmt.Sprintf("raw-%d", mebibytes)
		disk := filepath.Join(t.TempDir(), name+".img")
		if err := os.WriteFile(disk, []byte("a disk"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(disk, mebibytes<<20); err != nil {
			t.Fatal(err)
		}
		c.virtctl(t, nil, "-n", ns, "import", disk, "--name", name)
	}
}

// packOVA writes an archive of names and bodies.
func packOVA(t *testing.T, path string, members ...any) {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for i := 0; i < len(members); i += 2 {
		body := members[i+1].([]byte)
		if err := w.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: members[i].(string), Mode: 0o644, Size: int64(len(body)),
		}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

package disk

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
)

var update = flag.Bool("update", false, "write the golden files")

// vmiWith has one disk on one volume, both named vol.
func vmiWith(d v1.DiskDevice, v v1.VolumeSource) *v1.VirtualMachineInstance {
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "demo"}}
	vmi.Spec.Domain.Devices.Disks = []v1.Disk{{Name: "vol", DiskDevice: d}}
	vmi.Spec.Volumes = []v1.Volume{{Name: "vol", VolumeSource: v}}
	return vmi
}

func claimSource(readOnly bool) v1.VolumeSource {
	return v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{
		PersistentVolumeClaimVolumeSource: corev1.PersistentVolumeClaimVolumeSource{
			ClaimName: "pvc", ReadOnly: readOnly,
		},
	}}
}

func emptyDisk(size string) v1.VolumeSource {
	return v1.VolumeSource{EmptyDisk: &v1.EmptyDiskSource{Capacity: resource.MustParse(size)}}
}

var (
	asDisk        = v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusVirtio}}
	asCDRom       = v1.DiskDevice{CDRom: &v1.CDRomTarget{}}
	containerDisk = v1.VolumeSource{ContainerDisk: &v1.ContainerDiskSource{Image: "tiny"}}
	cloudInit     = v1.VolumeSource{CloudInitNoCloud: &v1.CloudInitNoCloudSource{UserData: "#cloud-config\n"}}
)

// withClaimInfo gives the VMI the status that virt-controller fills in for a claim.
func withClaimInfo(vmi *v1.VirtualMachineInstance, info v1.PersistentVolumeClaimInfo) *v1.VirtualMachineInstance {
	vmi.Status.VolumeStatus = []v1.VolumeStatus{{Name: "other"}, {Name: "vol", PersistentVolumeClaimInfo: &info}}
	return vmi
}

func storage(size string) map[corev1.ResourceName]resource.Quantity {
	return map[corev1.ResourceName]resource.Quantity{corev1.ResourceStorage: resource.MustParse(size)}
}

func TestNewPlan(t *testing.T) {
	qcow2Image := Facts{Path: "/containers/vol/disk/tiny.qcow2", Header: Header{FormatQcow2, 40 << 20}}
	for name, tc := range map[string]struct {
		vmi   *v1.VirtualMachineInstance
		facts Facts
	}{
		"container-disk": {vmiWith(asDisk, containerDisk), qcow2Image},
		"container-disk-raw": {
			vmiWith(asDisk, containerDisk),
			Facts{Path: "/containers/vol/disk/a.img", Header: Header{FormatRaw, 1 << 20}},
		},
		"container-disk-cdrom": {vmiWith(asCDRom, containerDisk), qcow2Image},
		"container-disk-readonly": {
			vmiWith(v1.DiskDevice{Disk: &v1.DiskTarget{ReadOnly: true}}, containerDisk), qcow2Image,
		},
		"empty-disk":     {vmiWith(asDisk, emptyDisk("1G")), Facts{}},
		"claim-image":    {vmiWith(asDisk, claimSource(false)), Facts{Exists: true}},
		"claim-readonly": {vmiWith(asDisk, claimSource(true)), Facts{Exists: true}},
		"claim-block":    {vmiWith(asDisk, claimSource(false)), Facts{Block: true}},
		"claim-empty":    {vmiWith(asDisk, claimSource(false)), Facts{Free: 10<<20 + 5}},
		"claim-empty-capacity": {
			withClaimInfo(vmiWith(asDisk, claimSource(false)),
				v1.PersistentVolumeClaimInfo{Capacity: storage("1Gi"), FilesystemOverhead: new(v1.Percent("0.055"))}),
			Facts{Free: 500 << 30},
		},
		"claim-empty-request": {
			withClaimInfo(vmiWith(asDisk, claimSource(false)), v1.PersistentVolumeClaimInfo{Requests: storage("1Gi")}),
			Facts{Free: 500 << 30},
		},
		"claim-empty-small": {
			withClaimInfo(vmiWith(asDisk, claimSource(false)), v1.PersistentVolumeClaimInfo{Capacity: storage("64Mi")}),
			Facts{Free: 60<<20 + 4096},
		},
		"cloud-init": {vmiWith(asDisk, cloudInit), Facts{}},
		"config-drive": {
			vmiWith(asDisk, v1.VolumeSource{CloudInitConfigDrive: &v1.CloudInitConfigDriveSource{UserData: "x"}}),
			Facts{},
		},
		"cloud-init-sata": {vmiWith(v1.DiskDevice{Disk: &v1.DiskTarget{Bus: v1.DiskBusSATA}}, cloudInit), Facts{}},
	} {
		t.Run(name, func(t *testing.T) {
			dirs := Dirs{
				Disks: "/disks", ContainerDisks: "/containers", Claims: "/claims", BlockDevices: "/dev/block",
				Secrets: "/secrets",
			}
			plan, err := NewPlan(tc.vmi, dirs, map[string]Facts{"vol": tc.facts})
			if err != nil {
				t.Fatal(err)
			}
			for i := range plan.Steps {
				if d := plan.Steps[i].Data; d != nil {
					plan.Steps[i].Data = []byte("(an image, tested elsewhere)")
				}
			}
			b, err := json.MarshalIndent(plan, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name+".json", string(b)+"\n")
		})
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (go test -update writes it)", err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

func TestNewPlanRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		vmi   *v1.VirtualMachineInstance
		facts Facts
		want  string
	}{
		"unknown volume": {
			vmiWith(asDisk, v1.VolumeSource{}), Facts{}, `volume "vol": this kind of volume is not supported`,
		},
		"no capacity":     {vmiWith(asDisk, emptyDisk("0")), Facts{}, "emptyDisk.capacity"},
		"no room":         {vmiWith(asDisk, claimSource(false)), Facts{Free: 100}, "claim pvc has no room"},
		"empty read-only": {vmiWith(asDisk, claimSource(true)), Facts{}, "claim pvc has no disk.img"},
		"bad base64": {
			vmiWith(asDisk, v1.VolumeSource{CloudInitNoCloud: &v1.CloudInitNoCloudSource{UserDataBase64: "%%"}}),
			Facts{},
			"cloudInitNoCloud.userDataBase64: not base64",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewPlan(tc.vmi, Dirs{}, map[string]Facts{"vol": tc.facts})
			if err == nil || !strings.Contains(err.Error(), tc.want) || !errors.Is(err, ErrInvalid) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestVolumeWithoutDiskIsLeftAlone(t *testing.T) {
	vmi := vmiWith(asDisk, v1.VolumeSource{})
	vmi.Spec.Domain.Devices.Disks = nil
	plan, err := NewPlan(vmi, Dirs{}, nil)
	if err != nil || len(plan.Sources) != 0 {
		t.Errorf("%+v, %v", plan, err)
	}
}

func TestPlanIgnition(t *testing.T) {
	vmi := vmiWith(asCDRom, containerDisk)
	vmi.Annotations = map[string]string{v1.IgnitionAnnotation: "{}"}
	plan, err := NewPlan(vmi, Dirs{Disks: "/disks"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []Step{{Action: WriteFile, Path: "/disks/.ignition.json", Data: []byte("{}")}}
	if diff := cmp.Diff(want, plan.Steps); diff != "" {
		t.Error(diff)
	}
}

// The image to which a disk is to be copied has room for it: a new file has exactly its size, whatever the claim has;
// what is there must be large enough.
func TestCopyTarget(t *testing.T) {
	const size = 64 << 20
	vmi := vmiWith(asDisk, claimSource(false))
	info := &v1.PersistentVolumeClaimInfo{
		ClaimName: "pvc", Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
	}
	vmi.Status.VolumeStatus = []v1.VolumeStatus{{Name: "vol", Size: size, PersistentVolumeClaimInfo: info}}
	vmi.Status.MigratedVolumes = []v1.StorageMigratedVolumeInfo{{VolumeName: "vol", DestinationPVCInfo: info}}
	for name, c := range map[string]struct {
		facts Facts
		makes int64
		want  string
	}{
		"new":            {Facts{Free: 2 << 30}, size, ""},
		"new, no room":   {Facts{Free: size}, 0, "use a larger claim"},
		"a device":       {Facts{Block: true, Size: size}, 0, ""},
		"a small device": {Facts{Block: true, Size: size - 512}, 0, "use a larger claim"},
		"there":          {Facts{Exists: true, Size: 2 * size}, 0, ""},
		"there, small":   {Facts{Exists: true, Size: size - 512}, 0, "use a larger claim"},
	} {
		t.Run(name, func(t *testing.T) {
			plan, err := NewPlan(vmi, Dirs{}, map[string]Facts{"vol": c.facts})
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, ErrInvalid) {
					t.Errorf("got %v, want %q", err, c.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if made := len(plan.Steps) > 0; made != (c.makes > 0) || made && plan.Steps[0].Size != c.makes {
				t.Errorf("%+v", plan.Steps)
			}
		})
	}
}

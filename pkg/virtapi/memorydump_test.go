package virtapi

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/sizing"
	"github.com/virtkit/virtkit/pkg/vm/surface"
)

func TestMayDump(t *testing.T) {
	running := instance(v1.Running)
	running.Spec.Volumes = []v1.Volume{
		{Name: "root", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "disk"}}},
	}
	last := func(phase v1.MemoryDumpPhase, remove bool) *v1.VirtualMachineMemoryDumpRequest {
		return &v1.VirtualMachineMemoryDumpRequest{ClaimName: "dump", Phase: phase, Remove: remove}
	}
	for name, tc := range map[string]struct {
		vmi   *v1.VirtualMachineInstance
		last  *v1.VirtualMachineMemoryDumpRequest
		claim string
		want  string // the error, or = and the claim
	}{
		"first":         {running, nil, "dump", "=dump"},
		"first unnamed": {running, nil, "", "requires claim name on first use"},
		"again":         {running, last(v1.MemoryDumpCompleted, false), "", "=dump"},
		"after failing": {running, last(v1.MemoryDumpFailed, false), "dump", "=dump"},
		"elsewhere": {
			running, last(v1.MemoryDumpCompleted, false), "other",
			"since the last was to [dump]; remove that one first",
		},
		"under way":     {running, last(v1.MemoryDumpInProgress, false), "dump", "already in progress"},
		"being removed": {running, last(v1.MemoryDumpCompleted, true), "dump", "is being removed"},
		"stopped":       {nil, nil, "dump", "VM is not running"},
		"starting":      {instance(v1.Scheduled), nil, "dump", "VM is not running"},
		"leaving":       {leaving(), nil, "dump", "VM is not running"},
		"volume's name": {running, nil, "root", `claim [root] is volume "root" of the VM`},
		"disk's claim":  {running, nil, "disk", `claim [disk] is volume "root" of the VM`},
	} {
		vm := machine(v1.RunStrategyAlways)
		vm.Status.MemoryDumpRequest = tc.last
		got, err := mayDump(vm, tc.vmi, tc.claim)
		if want, ok := strings.CutPrefix(tc.want, "="); ok && (err != nil || got != want) ||
			!ok && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %q, %v; want %q", name, got, err, tc.want)
		}
	}
}

// KubeVirt's virtctl makes a claim for 100 MiB more than the instance requests of memory, also when the guest has
// grown.
func TestDumpFitsWhatKubeVirtMakes(t *testing.T) {
	memory, more := resource.MustParse("128Mi"), resource.MustParse("1Gi")
	vmi := instance(v1.Running)
	vmi.Spec.Domain.Memory = &v1.Memory{Guest: &memory}
	surface.DefaultVirtualMachineInstance(vmi, surface.Defaults{MemoryOvercommit: 100})
	for range 2 {
		size := vmi.Spec.Domain.Resources.Requests.Memory().DeepCopy()
		size.Add(resource.MustParse("100Mi"))
		pvc := &corev1.PersistentVolumeClaim{}
		pvc.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: size}
		if err := dumpFits(machine(v1.RunStrategyAlways), vmi, pvc); err != nil {
			t.Error(err)
		}
		sizing.Change{Guest: &more}.Apply(&vmi.Spec.Domain)
	}
	if got := vmi.Spec.Domain.Resources.Requests.Memory(); got.Cmp(more) != 0 {
		t.Errorf("it requests %s after it has grown to %s", got, &more)
	}
}

func TestDumpFits(t *testing.T) {
	memory, block := resource.MustParse("128Mi"), corev1.PersistentVolumeBlock
	vmi := instance(v1.Running)
	vmi.Spec.Domain.Memory = &v1.Memory{Guest: &memory}
	for name, tc := range map[string]struct {
		size string
		mode *corev1.PersistentVolumeMode
		want string
	}{
		"enough":  {"228Mi", nil, ""},
		"too few": {"227Mi", nil, "claim [dump] has 227Mi; a dump of the VM's memory takes 228Mi"},
		"device":  {"1Gi", &block, "use a claim of volumeMode Filesystem"},
		"grown":   {"228Mi", nil, "a dump of the VM's memory takes 356Mi"},
	} {
		vmi.Status.Memory = nil
		if name == "grown" {
			vmi.Status.Memory = &v1.MemoryStatus{GuestCurrent: new(resource.MustParse("256Mi"))}
		}
		pvc := &corev1.PersistentVolumeClaim{}
		pvc.Name, pvc.Spec.VolumeMode = "dump", tc.mode
		pvc.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(tc.size)}
		err := dumpFits(machine(v1.RunStrategyAlways), vmi, pvc)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

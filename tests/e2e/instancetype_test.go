//go:build e2e

package e2e

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/instancetype/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/tests/instance"
)

// A guest has the size of its instance type and the devices of its preference, both inferred from the labels of a
// claim, and keeps them when the objects change or are gone. Another
// instance type changes its size while it runs.
func TestInstancetype(t *testing.T) {
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	c.claim(t, ns, "data", corev1.PersistentVolumeFilesystem)
	_, err := c.Kube.CoreV1().PersistentVolumeClaims(ns).Patch(t.Context(), "data", "application/merge-patch+json",
		[]byte(`{"metadata":{"labels":{
		"instancetype.kubevirt.io/default-instancetype":"small","instancetype.kubevirt.io/default-instancetype-kind":"VirtualMachineInstancetype",
		"instancetype.kubevirt.io/default-preference":"`+ns+`"}}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	small := v1beta1.VirtualMachineInstancetypeSpec{
		CPU: v1beta1.CPUInstancetype{Guest: 2},
		Memory: v1beta1.MemoryInstancetype{
			Guest: resource.MustParse("256Mi"), MaxGuest: ptr(resource.MustParse("1Gi")),
		},
	}
	linux := v1beta1.VirtualMachinePreferenceSpec{
		CPU:          &v1beta1.CPUPreferences{PreferredCPUTopology: ptr(v1beta1.Cores)},
		Devices:      &v1beta1.DevicePreferences{PreferredDiskBus: v1.DiskBusVirtio},
		Requirements: &v1beta1.PreferenceRequirements{CPU: &v1beta1.CPUPreferenceRequirement{Guest: 2}},
	}
	sockets := *linux.DeepCopy()
	sockets.CPU.PreferredCPUTopology = ptr(v1beta1.Sockets)
	objects := []client.Object{
		&v1beta1.VirtualMachineInstancetype{ObjectMeta: metav1.ObjectMeta{Name: "small", Namespace: ns}, Spec: small},
		&v1beta1.VirtualMachineClusterInstancetype{ObjectMeta: metav1.ObjectMeta{Name: ns}, Spec: small},
		&v1beta1.VirtualMachinePreference{ObjectMeta: metav1.ObjectMeta{Name: "linux", Namespace: ns}, Spec: linux},
		&v1beta1.VirtualMachineClusterPreference{ObjectMeta: metav1.ObjectMeta{Name: ns}, Spec: sockets},
	}
	for _, object := range objects {
		if err := c.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, object := range objects {
			if err := client.IgnoreNotFound(c.Client.Delete(context.WithoutCancel(t.Context()), object)); err != nil {
				t.Error(err)
			}
		}
	})
	_, err = c.Kube.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "answers"}, Data: map[string]string{"Autounattend.xml": "<unattend/>"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bare := func(vm *v1.VirtualMachine) {
		vm.Spec.Template.Spec.Domain.Memory = nil
		vm.Spec.Template.Spec.Domain.Devices.Disks = nil // each volume gets one
	}
	inferred := c.create(t,
		newVM(ns, "inferred", v1.RunStrategyManual, withClaim("data"), bare, func(vm *v1.VirtualMachine) {
			vm.Spec.Instancetype = &v1.InstancetypeMatcher{InferFromVolume: "data"}
			vm.Spec.Preference = &v1.PreferenceMatcher{InferFromVolume: "data"}
			// On scsi, since the tiny guest has no driver for sata, which is the default.
			spec := &vm.Spec.Template.Spec
			spec.Domain.Devices.Disks = []v1.Disk{
				{Name: "answers", DiskDevice: v1.DiskDevice{CDRom: &v1.CDRomTarget{Bus: v1.DiskBusSCSI}}},
			}
			spec.Volumes = append(spec.Volumes, v1.Volume{Name: "answers", VolumeSource: v1.VolumeSource{
				Sysprep: &v1.SysprepSource{ConfigMap: &corev1.LocalObjectReference{Name: "answers"}},
			}})
		}))
	named := c.create(t, newVM(ns, "named", v1.RunStrategyHalted, bare, func(vm *v1.VirtualMachine) {
		vm.Spec.Instancetype = &v1.InstancetypeMatcher{Name: ns}
		vm.Spec.Preference = &v1.PreferenceMatcher{Name: "linux", Kind: "VirtualMachinePreference"}
	}))
	for _, g := range []*guest{inferred, named} {
		eventually(t, 30*time.Second, g.name+" has its revisions", func() string {
			status := g.vm(t).Status
			if status.InstancetypeRef == nil || status.PreferenceRef == nil {
				return "status.instancetypeRef or preferenceRef is not set"
			}
			return ""
		})
	}
	for _, object := range objects {
		if err := c.Client.Delete(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	inferred.virtctl(t, nil, "-n", ns, "start", "inferred")
	inferred.waitLogin(t)
	con := inferred.openConsole(t, "")
	con.login(t, "root", "tiny")
	if n := con.run(t, "grep -c ^processor /proc/cpuinfo"); n != "2" {
		t.Errorf("the guest has %s processors", n)
	}
	if disks := con.run(t, "ls -d /sys/block/vd* | wc -l"); disks != "2" {
		t.Errorf("the guest has %s virtio disks", disks)
	}
	if answers := con.run(t,
		"mkdir -p /mnt; mount -t iso9660 -o ro /dev/sr0 /mnt; cat /mnt/Autounattend.xml"); answers != "<unattend/>" {
		t.Errorf("the sysprep CD has %q", answers)
	}
	if cpu := inferred.vmi(t).Spec.Domain.CPU; cpu.Cores != 1 || cpu.Sockets != 2 {
		t.Errorf("the CPU is %+v", cpu)
	}
	expanded, err := c.Kube.CoreV1().RESTClient().Get().
		AbsPath("/apis/subresources.kubevirt.io/v1/namespaces", ns,
			"virtualmachines/named/expand-spec").DoRaw(t.Context())
	if err != nil || !strings.Contains(string(expanded), `"256Mi"`) ||
		!strings.Contains(string(expanded), `"cores": 2`) {
		t.Errorf("expand-spec: %v\n%s", err, expanded)
	}

	// Another instance type, of which the running guest gets the CPUs and the memory.
	atBoot := con.memory(t)
	large := small
	large.CPU.Guest, large.Memory.Guest = 3, resource.MustParse("384Mi")
	if err := c.Client.Create(t.Context(),
		&v1beta1.VirtualMachineInstancetype{
			ObjectMeta: metav1.ObjectMeta{Name: "large", Namespace: ns}, Spec: large,
		}); err != nil {
		t.Fatal(err)
	}
	running := inferred.vmi(t).UID
	vm := inferred.vm(t)
	before := vm.DeepCopy()
	vm.Spec.Instancetype = &v1.InstancetypeMatcher{Name: "large", Kind: "VirtualMachineInstancetype"}
	if err := c.Client.Patch(t.Context(), vm, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	inferred.waitSize(t, con, 3, 384, atBoot+128)
	if inferred.vmi(t).UID != running {
		t.Error("the guest was started anew")
	}
	for _, condition := range inferred.vm(t).Status.Conditions {
		if condition.Type == v1.VirtualMachineRestartRequired {
			t.Errorf("condition %+v", condition)
		}
	}
}

// The common instance types are admitted, and make VMs.
func TestCommonInstancetypes(t *testing.T) {
	skipInShort(t)
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	out := c.virtctl(t, nil, "install", "--instancetypes")
	if !strings.Contains(out, "is ready") {
		t.Error(out)
	}
	c.virtctl(t, nil, "-n", ns, "create", "vm", "--name", "common", "--run-strategy", "Halted",
		"--instancetype", "u1.medium", "--preference", "windows.2k25.virtio",
		"--volume-containerdisk", "src:"+instance.TinyDisk(), "--apply", "--dry-run=server")
}

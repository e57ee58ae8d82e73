//go:build e2e

package e2e

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Bad input is refused by the server with the field's name, and nothing is created.
func TestBadInput(t *testing.T) {
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	spec := func(vm *v1.VirtualMachine) *v1.VirtualMachineInstanceSpec { return &vm.Spec.Template.Spec }
	for _, test := range []struct {
		name   string
		change func(*v1.VirtualMachine)
		want   string
	}{
		{
			"unknown run strategy",
			func(vm *v1.VirtualMachine) { vm.Spec.RunStrategy = ptr(v1.VirtualMachineRunStrategy("Sometimes")) },
			"spec.runStrategy",
		},
		{"two disks of one name", func(vm *v1.VirtualMachine) {
			spec(vm).Domain.Devices.Disks = append(spec(vm).Domain.Devices.Disks, spec(vm).Domain.Devices.Disks[0])
		}, "spec.template.spec.domain.devices.disks[1].name"},
		{
			"disk without volume", func(vm *v1.VirtualMachine) { spec(vm).Volumes = nil },
			"spec.template.spec.domain.devices.disks[0]",
		},
		{
			"no memory", func(vm *v1.VirtualMachine) { spec(vm).Domain.Memory.Guest = ptr(resource.MustParse("0")) },
			"spec.template.spec.domain.memory.guest",
		},
		{
			"cloud-init over 2048 bytes", withUserData("#cloud-config\n#" + strings.Repeat("x", 2048)),
			"spec.template.spec.volumes[1].cloudInitNoCloud.userData",
		},
		{"invalid base64", func(vm *v1.VirtualMachine) {
			withUserData("")(vm)
			spec(vm).Volumes[1].CloudInitNoCloud = &v1.CloudInitNoCloudSource{UserDataBase64: "%%%"}
		}, "spec.template.spec.volumes[1].cloudInitNoCloud.userDataBase64"},
		{
			"name over 253 characters", func(vm *v1.VirtualMachine) { vm.Name = strings.Repeat("n", 254) },
			"metadata.name",
		},
		{"unsupported field", func(vm *v1.VirtualMachine) {
			spec(vm).Domain.LaunchSecurity = &v1.LaunchSecurity{TDX: &v1.TDX{}}
		}, "spec.template.spec.domain.launchSecurity.tdx: not supported by virtkit"},
		{
			"GPU that is not permitted", func(vm *v1.VirtualMachine) {
				spec(vm).Domain.Devices.GPUs = []v1.GPU{{Name: "gpu", DeviceName: "vendor.com/gpu"}}
			},
			"spec.template.spec.domain.devices.gpus[0].deviceName: GPU vendor.com/gpu is not permitted " +
				"in permittedHostDevices",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			vm := newVM(ns, "bad", v1.RunStrategyAlways, test.change)
			err := c.Client.Create(t.Context(), vm)
			if err == nil {
				t.Fatal("it was accepted")
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error does not name %q: %v", test.want, err)
			}
		})
	}
	// The Go types cannot hold every mistake; the schema names the field of these.
	for want, memory := range map[string]any{
		"spec.template.spec.domain.memory.guest": map[string]any{"guest": "lots"},
		"spec.template.spec.domain.memory":       int64(7),
	} {
		vm := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
			"runStrategy": "Halted",
			"template": map[string]any{
				"spec": map[string]any{"domain": map[string]any{"memory": memory, "devices": map[string]any{}}},
			},
		}}}
		vm.SetGroupVersionKind(v1.VirtualMachineGroupVersionKind)
		vm.SetNamespace(ns)
		vm.SetName("bad")
		if err := c.Client.Create(t.Context(), vm); err == nil ||
			!strings.Contains(err.Error(), want+": Invalid value") {
			t.Errorf("memory %v: %v", memory, err)
		}
	}
	list := &v1.VirtualMachineList{}
	if err := c.Client.List(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	for _, vm := range list.Items {
		if vm.Namespace == ns {
			t.Errorf("vm %s was created", vm.Name)
		}
	}
}

// The image does not exist: the status says so, and deleting works.
func TestMissingImage(t *testing.T) {
	t.Parallel()
	c := theCluster
	vm := newVM(c.namespace(t, "restricted"), "imageless", v1.RunStrategyAlways, func(vm *v1.VirtualMachine) {
		vm.Spec.Template.Spec.Volumes[0].ContainerDisk = &v1.ContainerDiskSource{
			Image: "virtkit.invalid/no/such:image", ImagePullPolicy: corev1.PullNever,
		}
	})
	g := c.create(t, vm)
	g.waitStatus(t, 60*time.Second, v1.VirtualMachineStatusErrImagePull, v1.VirtualMachineStatusImagePullBackOff)
	if err := c.Client.Delete(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	g.waitGone(t, 60*time.Second)
}

// More memory than any node has.
func TestNotEnoughMemory(t *testing.T) {
	t.Parallel()
	c := theCluster
	vm := newVM(c.namespace(t, "restricted"), "giant", v1.RunStrategyAlways, func(vm *v1.VirtualMachine) {
		vm.Spec.Template.Spec.Domain.Memory.Guest = ptr(resource.MustParse("4Ti"))
	})
	g := c.create(t, vm)
	g.waitStatus(t, 30*time.Second, v1.VirtualMachineStatusUnschedulable)
	if err := c.Client.Delete(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	g.waitGone(t, 30*time.Second)
}

// The server keeps a VMI's spec as it was admitted.
func TestVMISpecIsImmutable(t *testing.T) {
	t.Parallel()
	c := theCluster
	vmi := c.shared(t).vmi(t)
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"domain":{"memory":{"guest":"1Gi"}}}}`))
	if err := c.Client.Patch(t.Context(), vmi, patch); !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
		t.Errorf("changing a running instance's memory: %v", err)
	}
}

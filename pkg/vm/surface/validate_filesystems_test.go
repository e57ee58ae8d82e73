package surface

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func TestValidateFilesystems(t *testing.T) {
	const at = "spec.domain.devices.filesystems[0]"
	// devices are the domain's, volumes the spec's.
	of := func(devices, volumes string) string {
		return "domain: {memory: {guest: 1Gi}, devices: {" + devices + "}}\nvolumes: [" + volumes + "]"
	}
	share := func(source string) string {
		return of("filesystems: [{name: a, virtiofs: {}}]", "{name: a, "+source+"}")
	}
	long := strings.Repeat("x", 37)
	for name, tc := range map[string]struct{ spec, want string }{
		"config map":      {share("configMap: {name: c}"), ``},
		"secret":          {share("secret: {secretName: c}"), ``},
		"service account": {share("serviceAccount: {serviceAccountName: c}"), ``},
		"downward API":    {share("downwardAPI: {fields: [{path: a, fieldRef: {fieldPath: metadata.name}}]}"), ``},
		"claim":           {share("persistentVolumeClaim: {claimName: c}"), ``},
		"data volume":     {share("dataVolume: {name: c}"), ``},
		"longest": {
			of("filesystems: [{name: "+long[1:]+", virtiofs: {}}]", "{name: "+long[1:]+", configMap: {name: c}}"), ``,
		},
		"with a disk": {
			of("disks: [{name: b, disk: {}}], filesystems: [{name: a, virtiofs: {}}]",
				"{name: a, configMap: {name: c}}, {name: b, containerDisk: {image: x}}"),
			``,
		},
		"no kind": {
			of("filesystems: [{name: a}]", "{name: a, configMap: {name: c}}"),
			at + ".virtiofs: is not set; write virtiofs: {}",
		},
		"no name":   {of("filesystems: [{virtiofs: {}}]", ""), at + ".name: is not set"},
		"no volume": {of("filesystems: [{name: a, virtiofs: {}}]", ""), at + `.name: no volume is named "a"`},
		"twice": {
			of("filesystems: [{name: a, virtiofs: {}}, {name: a, virtiofs: {}}]", "{name: a, configMap: {name: c}}"),
			`spec.domain.devices.filesystems[1].name: the volume is another file system already`,
		},
		"disk, too": {
			of("disks: [{name: a, disk: {}}], filesystems: [{name: a, virtiofs: {}}]",
				"{name: a, configMap: {name: c}}"),
			at + ".name: the volume is another disk already; a volume can be one disk, or one file system",
		},
		"long name": {
			of("filesystems: [{name: "+long+", virtiofs: {}}]", "{name: "+long+", configMap: {name: c}}"),
			at + ".name: has 37 characters; a file system's can have 36",
		},
		"container disk": {
			share("containerDisk: {image: x}"),
			at + `: the volume "a" cannot be a file system; use a persistentVolumeClaim`,
		},
		"cloud-init": {share("cloudInitNoCloud: {userData: x}"), at + `: the volume "a" cannot be a file system`},
		"ephemeral": {
			share("ephemeral: {persistentVolumeClaim: {claimName: c}}"),
			at + `: the volume "a" cannot be a file system`,
		},
		"plugged in": {
			share("persistentVolumeClaim: {claimName: c, hotpluggable: true}"), at + `: the volume "a" is hotpluggable`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := filesystemErrors(t, tc.spec, Gates{GateVirtiofsStorage: true}); tc.want == "" && got != "" ||
				!strings.HasPrefix(got, tc.want) {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
	if got := filesystemErrors(t, share("dataVolume: {name: c}"), nil); !strings.HasPrefix(got,
		at+": is not allowed in this installation; an administrator can add EnableVirtioFsStorageVolumes") {
		t.Errorf("gate closed: %s", got)
	}
	if got := filesystemErrors(t, share("secret: {secretName: c}"), nil); got != "" {
		t.Errorf("gate closed, a secret: %s", got)
	}
}

// filesystemErrors are the errors of an instance with a spec.
func filesystemErrors(t *testing.T, text string, open Gates) string {
	t.Helper()
	vmi := &v1.VirtualMachineInstance{}
	vmi.Name = "vm"
	if err := yaml.UnmarshalStrict([]byte(text), &vmi.Spec); err != nil {
		t.Fatal(err)
	}
	DefaultVirtualMachineInstance(vmi, Defaults{})
	return Message(append(ValidateVirtualMachineInstance(vmi, Actor{}),
		validateGates(&vmi.Spec, open, field.NewPath("spec"))...))
}

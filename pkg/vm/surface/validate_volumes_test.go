package surface

import (
	"fmt"
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// Each case is the volumes of an instance, or its domain; want is the start of the only message, or nothing.
func TestValidateVolumes(t *testing.T) {
	one := func(source string) string { return "volumes: [{name: root, " + source + "}]" }
	down := func(item string) string { return one("downwardAPI: {fields: [" + item + "]}") }
	kernel := func(text string) string {
		return "domain: {memory: {guest: 1Gi}, firmware: {kernelBoot: {" + text + "}}}"
	}
	const (
		at      = "spec.volumes[0]."
		boot    = "spec.domain.firmware.kernelBoot."
		account = "serviceAccount: {serviceAccountName: a}"
	)
	for name, tc := range map[string]struct{ spec, want string }{
		"metrics": {one("downwardMetrics: {}"), ``},
		"two metrics": {
			"volumes: [{name: a, downwardMetrics: {}}, {name: b, downwardMetrics: {}}]",
			`spec.volumes[1].downwardMetrics: the volume "a" is one already`,
		},
		"metrics on sata": {
			"domain: {memory: {guest: 1Gi}, devices: {disks: [{name: root, " +
				"disk: {bus: sata}}]}}\nvolumes: [{name: root, downwardMetrics: {}}]",
			`spec.domain.devices.disks[0].disk.bus: a sata disk cannot be read-only`,
		},
		"memory dump":    {one("memoryDump: {claimName: c}"), at + `memoryDump: not supported by virtkit`},
		"container path": {one("containerPath: {path: /a}"), at + `containerPath: not supported by virtkit`},
		"utility volumes": {
			"volumes: [{name: root, containerDisk: {image: x}}]\nutilityVolumes: [{name: a, claimName: c}]",
			`spec.utilityVolumes: not supported by virtkit`,
		},
		"host disk": {one("hostDisk: {path: /d/disk.img, type: Disk}"), ``},
		"host disk, made": {
			one("hostDisk: {path: /d/disk.img, type: DiskOrCreate, capacity: 1Gi, shared: true}"), ``,
		},
		"host disk, no path": {one("hostDisk: {type: Disk}"), at + `hostDisk.path: is not set`},
		"host disk, relative": {
			one("hostDisk: {path: d/disk.img, type: Disk}"), at + `hostDisk.path: "d/disk.img" is not an absolute path`,
		},
		"host disk, directory": {
			one("hostDisk: {path: /, type: Disk}"), at + `hostDisk.path: "/" is not an absolute path to a file`,
		},
		"host disk, no type": {
			one("hostDisk: {path: /d/disk.img}"), at + `hostDisk.type: is not set; use Disk or DiskOrCreate`,
		},
		"host disk, type": {
			one("hostDisk: {path: /d/disk.img, type: File}"),
			at + `hostDisk.type: "File" is not supported; use Disk or DiskOrCreate`,
		},
		"host disk, capacity": {
			one("hostDisk: {path: /d/disk.img, type: Disk, capacity: 1Gi}"),
			at + `hostDisk.capacity: has no effect on an image that is there`,
		},
		"host disk, negative": {
			one("hostDisk: {path: /d/disk.img, type: DiskOrCreate, capacity: -1}"),
			at + `hostDisk.capacity: must not be negative`,
		},
		"config map":          {one("configMap: {name: c}"), ``},
		"config map, label":   {one("configMap: {name: c, volumeLabel: config-2, optional: true}"), ``},
		"config map, no name": {one("configMap: {volumeLabel: a}"), at + `configMap.name: is not set`},
		"config map, bad name": {
			one("configMap: {name: A_b}"), at + `configMap.name: "A_b" is not the name of an object`,
		},
		"long label": {
			one("configMap: {name: c, volumeLabel: " + strings.Repeat("x", 33) + "}"),
			at + `configMap.volumeLabel: must be at most 32`,
		},
		"strange label":    {one("secret: {secretName: c, volumeLabel: 'a/b'}"), at + `secret.volumeLabel: must be`},
		"secret":           {one("secret: {secretName: c}"), ``},
		"secret, no name":  {one("secret: {optional: true}"), at + `secret.secretName: is not set`},
		"account":          {one(account), ``},
		"account, no name": {one("serviceAccount: {}"), at + `serviceAccount.serviceAccountName: is not set`},
		"two accounts": {
			"volumes: [{name: a, " + account + "}, {name: b, " + account + "}]",
			`spec.volumes[1].serviceAccount: the volume "a" is one already; there can be one serviceAccount volume only`,
		},
		"ephemeral":          {one("ephemeral: {persistentVolumeClaim: {claimName: c}}"), ``},
		"ephemeral, nothing": {one("ephemeral: {}"), at + `ephemeral.persistentVolumeClaim: is not set`},
		"ephemeral, no claim": {
			one("ephemeral: {persistentVolumeClaim: {}}"), at + `ephemeral.persistentVolumeClaim.claimName: is not set`,
		},
		"ephemeral and claim": {
			"volumes: [{name: a, persistentVolumeClaim: {claimName: c}}, {name: b, " +
				"ephemeral: {persistentVolumeClaim: {claimName: c}}}]",
			`spec.volumes[1].ephemeral.persistentVolumeClaim.claimName: claim "c" is the disk "a" already`,
		},
		"downward API": {
			down("{path: a/b, fieldRef: {fieldPath: metadata.labels}}, {path: c, " +
				"resourceFieldRef: {resource: limits.memory}}, {path: d, " +
				"fieldRef: {fieldPath: \"metadata.annotations['x/y']\"}}"),
			``,
		},
		"downward, no path": {
			down("{fieldRef: {fieldPath: metadata.name}}"), at + `downwardAPI.fields[0].path: is not set`,
		},
		"downward, out": {
			down("{path: ../a, fieldRef: {fieldPath: metadata.name}}"),
			at + `downwardAPI.fields[0].path: "../a" is not a relative path`,
		},
		"downward, twice": {
			down("{path: a, fieldRef: {fieldPath: metadata.name}}, {path: a, fieldRef: {fieldPath: metadata.uid}}"),
			at + `downwardAPI.fields[1].path: "a" is the name of another file too`,
		},
		"downward, no source": {down("{path: a}"), at + `downwardAPI.fields[0]: has neither`},
		"downward, two sources": {
			down("{path: a, fieldRef: {fieldPath: metadata.name}, resourceFieldRef: {resource: limits.cpu}}"),
			at + `downwardAPI.fields[0]: has both`,
		},
		"downward, field": {
			down("{path: a, fieldRef: {fieldPath: spec.nodeName}}"),
			at + `downwardAPI.fields[0].fieldRef.fieldPath: "spec.nodeName" is not supported in a volume`,
		},
		"downward, container": {
			down("{path: a, resourceFieldRef: {resource: limits.cpu, containerName: web}}"),
			at + `downwardAPI.fields[0].resourceFieldRef.containerName: "web" is no container of the pod; use compute`,
		},
		"downward, resource": {
			down("{path: a, resourceFieldRef: {containerName: compute}}"),
			at + `downwardAPI.fields[0].resourceFieldRef.resource: is not set`,
		},

		"kernel": {
			kernel("kernelArgs: quiet, container: {image: k, kernelPath: /vmlinuz, initrdPath: /initrd}"), ``,
		},
		"no kernel":        {kernel(""), ``},
		"args, no kernel":  {kernel("kernelArgs: quiet"), boot + `kernelArgs: there is no kernel that would read them`},
		"kernel, no image": {kernel("container: {kernelPath: /a}"), boot + `container.image: is not set`},
		"kernel, image": {
			kernel("container: {image: 'a b', kernelPath: /a}"),
			boot + `container.image: "a b" is not an image reference`,
		},
		"initrd, no kernel": {
			kernel("container: {image: k, initrdPath: /a}"), boot + `container.kernelPath: is not set`,
		},
		"kernel, relative": {
			kernel("container: {image: k, kernelPath: a}"), boot + `container.kernelPath: "a" is not an absolute path`,
		},
		"kernel, out": {
			kernel("container: {image: k, kernelPath: /../a}"), boot + `container.kernelPath: "/../a" is not`,
		},
		"kernel, pulled": {
			kernel("container: {image: k, kernelPath: /a, imagePullSecret: A_}"),
			boot + `container.imagePullSecret: "A_" is not the name`,
		},
		"kernel, pull never": {
			kernel("container: {image: k, kernelPath: /a, imagePullPolicy: Sometimes}"),
			boot + `container.imagePullPolicy: "Sometimes" is not supported`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := &v1.VirtualMachineInstance{}
			vmi.Name = "vm"
			text := "domain: {memory: {guest: 1Gi}}\n"
			if strings.HasPrefix(tc.spec, "domain") {
				text = ""
			}
			if err := yaml.UnmarshalStrict([]byte(text+tc.spec), &vmi.Spec); err != nil {
				t.Fatal(err)
			}
			DefaultVirtualMachineInstance(vmi, Defaults{})
			errs := ValidateVirtualMachineInstance(vmi, Actor{})
			got := Message(errs)
			if tc.want == "" && got != "" || tc.want != "" && (len(errs) != 1 || !strings.HasPrefix(got, tc.want)) {
				t.Errorf("%s\nwant %s", fmt.Sprint(got), tc.want)
			}
		})
	}
}

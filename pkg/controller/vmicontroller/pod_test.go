package vmicontroller

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	psaapi "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/service/config"
	"github.com/virtkit/virtkit/pkg/vm/surface"
)

var update = flag.Bool("update", false, "write the golden files")

const baseVMI = `
metadata: {name: demo, namespace: default, uid: 8f2c5d0e-0a5b-4a57-9f0b-6f7d8c1e2a3b}
spec:
  architecture: amd64
  terminationGracePeriodSeconds: 30
  domain:
    cpu: {cores: 1, sockets: 1, threads: 1}
    memory: {guest: 128Mi}
    devices:
      disks: [{name: root, disk: {bus: virtio}}]
      interfaces: [{name: default, masquerade: {}}]
  networks: [{name: default, pod: {}}]
  volumes: [{name: root, containerDisk: {image: "registry.example/tiny:1"}}]
`

func baseFacts() Facts {
	cfg := config.Default()
	cfg.Architecture = "amd64"
	return Facts{Config: cfg, Image: "registry.example/virt-launcher:v1", ImagePullPolicy: corev1.PullIfNotPresent}
}

// parseVMI is the base with the fields of a YAML laid over it, maps merged and all else replaced.
func parseVMI(t *testing.T, overlay string) *v1.VirtualMachineInstance {
	t.Helper()
	merged := map[string]any{}
	for _, text := range []string{baseVMI, overlay} {
		layer := map[string]any{}
		if err := yaml.UnmarshalStrict([]byte(text), &layer); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		lay(merged, layer)
	}
	data, err := yaml.Marshal(merged)
	if err != nil {
		t.Fatal(err)
	}
	vmi := &v1.VirtualMachineInstance{}
	if err := yaml.UnmarshalStrict(data, vmi); err != nil {
		t.Fatal(err)
	}
	return vmi
}

func lay(onto, layer map[string]any) {
	for key, value := range layer {
		below, ok := onto[key].(map[string]any)
		if above, isMap := value.(map[string]any); ok && isMap {
			lay(below, above)
			continue
		}
		onto[key] = value
	}
}

func claimOf(name string, mode corev1.PersistentVolumeMode) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: corev1.PersistentVolumeClaimSpec{
			VolumeMode: &mode, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		},
		Status: corev1.PersistentVolumeClaimStatus{
			Phase: corev1.ClaimBound, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
		},
	}
}

// podCases has one for each supported field that makes a difference to the pod. The golden file of
// base is the whole pod, that of another case how it differs from base.
const hyperv = `spec: {domain: {features: {hyperv: {relaxed: {}, synic: {enabled: true}, vpindex: {}, ipi: {enabled: false}, synictimer: {}, tlbflush: {}, evmcs: {}}}}}`

var podCases = []struct {
	name  string
	vmi   string
	facts func(*Facts)
}{
	{name: "base"},
	{name: "labels and annotations", vmi: `
metadata:
  labels: {app: web, kubevirt.io/vm: demo, kubevirt.io/nodeName: old}
  annotations: {example.com/note: x, kubectl.kubernetes.io/last-applied-configuration: "{}", kubevirt.io/vm-generation: "3"}`},
	{name: "mesh proxy", vmi: `metadata: {labels: {sidecar.istio.io/inject: "true"}}`},
	{name: "mesh proxy by annotation", vmi: `metadata: {annotations: {sidecar.istio.io/inject: "true"}}`},
	{name: "log verbosity", vmi: `
metadata: {labels: {logVerbosity: "4"}}`, facts: func(f *Facts) { f.Config.LogVerbosity.Launcher = 7 }},
	{name: "log filters", vmi: `
metadata:
  labels: {debugLogs: "true", virtiofsdDebugLogs: "True"}
  annotations: {kubevirt.io/libvirt-log-filters: "2:qemu.qemu_monitor  3:*"}
spec:
  domain: {devices: {filesystems: [{name: cfg, virtiofs: {}}]}}
  volumes: [{name: cfg, configMap: {name: settings}}]`},
	{name: "long name", vmi: `metadata: {name: a-name-that-is-quite-long-for-a-label-and-has-exactly-sixty-six-bytes}`},
	{name: "hostname", vmi: `spec: {hostname: web, subdomain: farm}`},
	{name: "name with dots", vmi: `metadata: {name: demo.example}`},
	{name: "grace period", vmi: `spec: {terminationGracePeriodSeconds: 0}`},
	{name: "grace period unset", vmi: `spec: {terminationGracePeriodSeconds: null}`},
	{name: "node selector", vmi: `spec: {nodeSelector: {disk: fast}}`},
	{name: "affinity", vmi: `
spec:
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: In, values: [a]}]}]`},
	{name: "tolerations", vmi: `spec: {tolerations: [{key: vms, operator: Exists}]}`},
	{name: "topology spread", vmi: `
spec:
  topologySpreadConstraints:
  - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}`},
	{name: "priority class", vmi: `spec: {priorityClassName: high}`},
	{name: "scheduler", vmi: `spec: {schedulerName: mine}`},
	{name: "dns", vmi: `spec: {dnsPolicy: None, dnsConfig: {nameservers: [10.0.0.10], searches: [example.com]}}`},
	{name: "architecture", vmi: `spec: {architecture: arm64}`},
	{
		name: "architecture by configuration", vmi: `spec: {architecture: ""}`,
		facts: func(f *Facts) { f.Config.Architecture = "arm64" },
	},

	{name: "vcpus", vmi: `spec: {domain: {cpu: {cores: 2, sockets: 2, threads: 1}}}`},
	{name: "cpu request", vmi: `spec: {domain: {resources: {requests: {cpu: 1500m}}}}`},
	{name: "cpu limit", vmi: `spec: {domain: {cpu: null, resources: {limits: {cpu: "2"}}}}`},
	{name: "memory by request", vmi: `spec: {domain: {memory: null, resources: {requests: {memory: 256Mi}}}}`},
	{name: "memory limit", vmi: `spec: {domain: {resources: {limits: {memory: 256Mi}}}}`},
	{name: "room to grow", vmi: `spec: {domain: {cpu: {maxSockets: 4}, memory: {maxGuest: 512Mi}}}`},
	{name: "added overhead", vmi: `spec: {domain: {memory: {reservedOverhead: {addedOverhead: 64Mi}}}}`},
	{
		name: "overcommitted overhead",
		vmi:  `spec: {domain: {resources: {limits: {memory: 256Mi}, overcommitGuestOverhead: true}}}`,
	},
	{
		name: "dedicated cpus",
		vmi:  `spec: {domain: {cpu: {cores: 2, dedicatedCpuPlacement: true, isolateEmulatorThread: true}}}`,
	},
	{
		name: "dedicated cpus with limits",
		vmi:  `spec: {domain: {cpu: {dedicatedCpuPlacement: true}, resources: {limits: {cpu: "1", memory: 256Mi}}}}`,
	},
	{
		name: "hugepages",
		vmi:  `spec: {domain: {memory: {hugepages: {pageSize: 2Mi}}, resources: {limits: {memory: 256Mi}}}}`,
	},
	{name: "no graphics", vmi: `spec: {domain: {devices: {autoattachGraphicsDevice: false}}}`},
	{name: "tpm", vmi: `spec: {domain: {devices: {tpm: {}}}}`},
	{name: "tpm persistent", vmi: persistentTPM},
	{name: "kvm", facts: func(f *Facts) { f.KVM = true }},
	{name: "kvm but emulation", facts: func(f *Facts) { f.KVM, f.Config.UseEmulation = true, true }},

	{
		name: "realtime",
		vmi:  `spec: {domain: {memory: {hugepages: {pageSize: 2Mi}}, cpu: {cores: 2, dedicatedCpuPlacement: true, numa: {guestMappingPassthrough: {}}, realtime: {}}}}`,
	},
	{
		name: "cpu features",
		vmi:  `spec: {domain: {cpu: {features: [{name: aes}, {name: avx, policy: require}, {name: vmx, policy: force}, {name: pcid, policy: optional}, {name: svm, policy: disable}]}}}`,
	},
	{
		name: "time stamp counter",
		vmi:  `{spec: {domain: {cpu: {features: [{name: invtsc, policy: require}]}}}, status: {topologyHints: {tscFrequency: 2500000000}}}`,
	},
	{name: "hyperv", vmi: hyperv, facts: func(f *Facts) { f.KVM = true }},
	{name: "hyperv strictly", vmi: hyperv, facts: func(f *Facts) {
		f.KVM, f.Config.Allowed.Gates = true, surface.Gates{surface.GateHypervStrictCheck: true}
	}},
	{
		name:  "cpu of another architecture",
		vmi:   `spec: {architecture: arm64, domain: {cpu: {model: max, features: [{name: aes}]}}}`,
		facts: func(f *Facts) { f.KVM = true },
	},
	{
		name: "cpu model", vmi: `spec: {domain: {cpu: {model: Skylake-Server-v4}}}`,
		facts: func(f *Facts) { f.KVM = true },
	},

	{name: "container disk", vmi: `
spec:
  volumes:
  - {name: root, containerDisk: {image: "registry.example/a:1", imagePullPolicy: Always, imagePullSecret: one, path: /disk/x.qcow2}}
  - {name: data, containerDisk: {image: "registry.example/b:1", imagePullSecret: one}}
  - {name: more, containerDisk: {image: "registry.example/c:1", imagePullSecret: two}}`},
	{name: "filesystem claim", vmi: `spec: {volumes: [{name: data, persistentVolumeClaim: {claimName: fs}}]}`},
	{
		name: "read-only claim",
		vmi:  `spec: {volumes: [{name: data, persistentVolumeClaim: {claimName: fs, readOnly: true}}]}`,
	},
	{name: "block claim", vmi: `spec: {volumes: [{name: data, persistentVolumeClaim: {claimName: block}}]}`},
	{name: "access credentials", vmi: `
spec:
  accessCredentials:
  - sshPublicKey: {source: {secret: {secretName: keys.example}}, propagationMethod: {noCloud: {}}}
  - sshPublicKey: {source: {secret: {secretName: keys.example}}, propagationMethod: {qemuGuestAgent: {users: [root]}}}
  - userPassword: {source: {secret: {secretName: passwords}}, propagationMethod: {qemuGuestAgent: {}}}`},
	{name: "cloud-init inline", vmi: `spec: {volumes: [{name: seed, cloudInitNoCloud: {userData: "#cloud-config"}}]}`},
	{
		name: "cloud-init secrets",
		vmi:  `spec: {volumes: [{name: seed, cloudInitNoCloud: {secretRef: {name: user}, networkDataSecretRef: {name: net}}}]}`,
	},
	{
		name: "config drive secrets",
		vmi:  `spec: {volumes: [{name: seed, cloudInitConfigDrive: {secretRef: {name: user}, networkDataSecretRef: {name: net}}}]}`,
	},
	{name: "empty disk", vmi: `spec: {volumes: [{name: scratch, emptyDisk: {capacity: 1Gi}}]}`},
	{name: "volume names that are taken", vmi: `
spec:
  volumes:
  - {name: run, containerDisk: {image: "registry.example/a:1"}}
  - {name: disks, persistentVolumeClaim: {claimName: block}}`},

	{
		name: "encrypted",
		vmi:  `spec: {domain: {launchSecurity: {sev: {}}, firmware: {bootloader: {efi: {secureBoot: false}}}}}`,
	},
	{
		name: "encrypted with its state",
		vmi:  `spec: {domain: {launchSecurity: {sev: {policy: {encryptedState: true}}}, firmware: {bootloader: {efi: {secureBoot: false}}}}}`,
	},
	{name: "vsock", vmi: `spec: {domain: {devices: {autoattachVSOCK: true}}}`},
	{
		name: "functions of network cards", vmi: `
spec:
  domain: {devices: {interfaces: [{name: default, masquerade: {}}, {name: red, sriov: {}, macAddress: "02:00:00:00:00:07"}, {name: blue, sriov: {}}, {name: green, sriov: {}}]}}
  networks: [{name: default, pod: {}}, {name: red, multus: {networkName: red-net}}, {name: blue, multus: {networkName: other/blue-net}}, {name: green, multus: {networkName: green-net}}]`,
		facts: func(f *Facts) {
			f.NetworkResources = map[string]string{
				"red":   "intel.com/sriov_a",
				"blue":  "intel.com/sriov_b",
				"green": "intel.com/sriov_a",
			}
		},
	},
	{
		name: "devices of the node",
		vmi:  `spec: {domain: {devices: {gpus: [{name: a, deviceName: v/gpu}, {name: b, deviceName: v/gpu}], hostDevices: [{name: c, deviceName: v/qat}]}}}`,
	},

	{name: "configuration", facts: func(f *Facts) {
		f.Config.ImagePullPolicy = corev1.PullAlways
		f.Config.NodeSelectors = map[string]string{"vms": "yes"}
		f.Config.RuntimeClass = "crun"
		f.Config.MemoryOverheadRatio = 2
		f.Config.MemoryOvercommit = 200
		f.Config.CPUAllocationRatio = 4
	}},
	{
		name:  "cpu request by configuration",
		facts: func(f *Facts) { f.Config.CPURequest = new(resource.MustParse("50m")) },
	},
}

func TestPod(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	restricted := psaapi.LevelVersion{Level: psaapi.LevelRestricted, Version: psaapi.LatestVersion()}
	base := render(t, "", nil)
	for _, c := range podCases {
		t.Run(c.name, func(t *testing.T) {
			pod := plan(t, c.vmi, c.facts)
			if result := policy.AggregateCheckResults(evaluator.EvaluatePod(restricted,
				&pod.ObjectMeta, &pod.Spec)); result.Allowed == hasHostPath(pod) {
				// those alone need a namespace that allows them
				t.Errorf("not restricted: %s", result.ForbiddenDetail())
			}
			got := render(t, c.vmi, c.facts)
			if c.name != "base" {
				got = difference(base, got)
			}
			golden(t, strings.ReplaceAll(c.name, " ", "-")+".yaml", got)
		})
	}
}

func plan(t *testing.T, overlay string, facts func(*Facts)) *corev1.Pod {
	t.Helper()
	f := baseFacts()
	f.Claims = map[string]*corev1.PersistentVolumeClaim{
		"fs": claimOf("fs", corev1.PersistentVolumeFilesystem), "block": claimOf("block", corev1.PersistentVolumeBlock),
	}
	if facts != nil {
		facts(&f)
	}
	return Pod(parseVMI(t, overlay), f)
}

func render(t *testing.T, overlay string, facts func(*Facts)) string {
	t.Helper()
	data, err := yaml.Marshal(plan(t, overlay, facts))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", "pod", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v; run with -update to write it", err)
	}
	if got != string(want) {
		t.Errorf("%s is not what is planned; run with -update to accept it:\n%s", file, difference(string(want), got))
	}
}

// difference lists the lines that went (-) and came (+), each under the line before it, by the
// longest common subsequence.
func difference(before, after string) string {
	a, b := strings.Split(before, "\n"), strings.Split(after, "\n")
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var out strings.Builder
	same := true
	say := func(i int, sign, line string) {
		if same && i > 0 {
			fmt.Fprintf(&out, "  %s\n", a[i-1])
		}
		same = false
		fmt.Fprintf(&out, "%s %s\n", sign, line)
	}
	for i, j := 0, 0; i < len(a) || j < len(b); {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			i, j, same = i+1, j+1, true
		case i < len(a) && (j == len(b) || common[i+1][j] >= common[i][j+1]):
			say(i, "-", a[i])
			i++
		default:
			say(i, "+", b[j])
			j++
		}
	}
	return out.String()
}

func TestGoldenFilesHaveCases(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "pod", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		if !slices.ContainsFunc(podCases, func(c struct {
			name  string
			vmi   string
			facts func(*Facts)
		},
		) bool {
			return strings.ReplaceAll(c.name, " ", "-") == name
		}) {
			t.Errorf("%s belongs to no case", file)
		}
	}
}

func TestOverhead(t *testing.T) {
	small := Overhead(parseVMI(t, ""), 1)
	if small > 100*mebi {
		t.Errorf("the smallest guest costs %d MiB beyond its own, more than 100", small/mebi)
	}
	large := Overhead(parseVMI(t, `spec: {domain: {cpu: {cores: 16}, memory: {guest: 64Gi}}}`), 1)
	if want := small + 15*overheadVCPU + (64<<30-128<<20)/pageTableRatio; large != want {
		t.Errorf("16 vCPUs and 64 GiB cost %d bytes, want %d", large, want)
	}
}

// The kubelet makes a directory NAMESPACE_NAME_UID for a pod's logs.
func TestNamesOfLongNames(t *testing.T) {
	for name, vmi := range map[string]string{
		"63": strings.Repeat("a", 63), "64": strings.Repeat("a", 64), "253": strings.Repeat("a", 253),
		"a dot at the end of what is left": strings.Repeat("a", 62) + "." + strings.Repeat("b", 190),
	} {
		t.Run(name, func(t *testing.T) {
			pod := plan(t, "metadata: {name: "+vmi+"}", nil)
			if problems := validation.IsDNS1123Subdomain(pod.Name); len(problems) > 0 || 63+1+len(pod.Name)+1+36 > 255 {
				t.Errorf("pod %s: %v", pod.Name, problems)
			}
			if problems := validation.IsDNS1123Label(pod.Spec.Hostname); len(problems) > 0 {
				t.Errorf("host name %s: %v", pod.Spec.Hostname, problems)
			}
			for key, value := range pod.Labels {
				if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
					t.Errorf("label %s=%s: %v", key, value, problems)
				}
			}
			if pod.Annotations[v1.DomainAnnotation] != vmi ||
				!slices.Contains(pod.Spec.Containers[0].Args, "--name="+vmi) {
				t.Error("the launcher is not told its VMI's whole name")
			}
		})
	}
	if one, other := LauncherName(strings.Repeat("a", 100)+"1",
		"1"), LauncherName(strings.Repeat("a", 100)+"2", "2"); one == other {
		t.Errorf("two VMIs have pods %s", one)
	}
}

func TestPodName(t *testing.T) {
	one, other := parseVMI(t, ""), parseVMI(t, "metadata: {uid: other}")
	if PodName(one) != PodName(one.DeepCopy()) || PodName(one) == PodName(other) {
		t.Errorf("names %s and %s", PodName(one), PodName(other))
	}
	if !strings.HasPrefix(PodName(one), "virt-launcher-demo-") || len(PodName(one)) != len("virt-launcher-demo-")+5 {
		t.Errorf("name %s", PodName(one))
	}
}

// Admission says what an instance requests of memory. Pods are what they would be without.
func TestRequestedMemoryChangesNoPod(t *testing.T) {
	said := 0
	for _, c := range podCases {
		for _, overcommit := range []int{100, 150} {
			facts := baseFacts()
			if c.facts != nil {
				c.facts(&facts)
			}
			facts.Config.MemoryOvercommit = overcommit
			vmi := parseVMI(t, c.vmi)
			_, own := vmi.Spec.Domain.Resources.Requests[corev1.ResourceMemory]
			surface.DefaultVirtualMachineInstance(vmi, surface.Defaults{MemoryOvercommit: overcommit})
			without := vmi.DeepCopy()
			if _, ok := vmi.Spec.Domain.Resources.Requests[corev1.ResourceMemory]; ok && !own {
				said++
				delete(without.Spec.Domain.Resources.Requests, corev1.ResourceMemory)
			}
			if diff := cmp.Diff(resources(without, facts), resources(vmi, facts)); diff != "" {
				t.Errorf("%s, %d%%: %s", c.name, overcommit, diff)
			}
		}
	}
	if said < len(podCases)/2 {
		t.Errorf("only %d instances were told what they request", said)
	}
}

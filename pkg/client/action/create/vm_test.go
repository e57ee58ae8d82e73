package create

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func base() Options {
	return Options{Name: "demo", Memory: "512Mi", TerminationGracePeriodSeconds: 180}
}

func TestVMGolden(t *testing.T) {
	yes := true
	with := func(change func(*Options)) Options {
		o := base()
		change(&o)
		return o
	}
	for name, o := range map[string]Options{
		"minimal":      base(),
		"namespace":    with(func(o *Options) { o.Namespace = "shop" }),
		"run-strategy": with(func(o *Options) { o.RunStrategy = "rerunonfailure" }),
		"size":         with(func(o *Options) { o.CPU, o.Memory = 4, "8Gi" }),
		"mac":          with(func(o *Options) { o.MAC = "02-12-34-56-78-9A" }),
		"networks": with(func(o *Options) {
			o.MAC = "02:12:34:56:78:9a"
			o.Networks = []Network{{"red", "red-net"}, {"blue", "other/blue-net"}}
			o.IPs = map[string][]string{"red": {"192.0.2.7/24", "2001:DB8::7"}}
		}),
		"grace-period": with(func(o *Options) { o.TerminationGracePeriodSeconds = 0 }),
		"volumes": with(func(o *Options) {
			o.Volumes = []Volume{
				{Kind: ContainerDisk, Source: "quay.io/disks/alpine:3"},
				{Kind: ContainerDisk, Source: "quay.io/disks/tools", Name: "tools", BootOrder: 2},
				{Kind: Claim, Source: "my.claim", BootOrder: 1},
				{Kind: Claim, Source: "shared", ReadOnly: true},
				{Kind: Empty, Source: "10Gi"},
			}
		}),
		// Firmware boots from the first disk, which is not the read-only one.
		"read-only": with(func(o *Options) {
			o.DiskBus = "virtio"
			o.Volumes = []Volume{
				{Kind: ContainerDisk, Source: "x", Name: "root"},
				{Kind: Claim, Source: "shared", Name: "shared", ReadOnly: true},
				{Kind: Empty, Source: "1Gi", Name: "scratch"},
			}
		}),
		"disk-bus": with(func(o *Options) {
			o.DiskBus, o.Preference = "virtio", "fedora"
			o.Volumes = []Volume{
				{Kind: ContainerDisk, Source: "x", BootOrder: 1},
				{Kind: Claim, Source: "c", ReadOnly: true},
				{Kind: Empty, Source: "1Gi"},
			}
		}),
		"cloud-init-account": with(func(o *Options) {
			o.CloudInit = CloudInit{User: "me", Password: "a: \"b\" #c", SSHKeys: []string{"ssh-ed25519 AAAA me@here"}}
		}),
		"cloud-init-data":    with(func(o *Options) { o.CloudInit = CloudInit{UserData: "eA==", NetworkData: "eQ=="} }),
		"cloud-init-network": with(func(o *Options) { o.CloudInit = CloudInit{NetworkData: "eQ=="} }),
		"cloud-init-none":    with(func(o *Options) { o.CloudInit = CloudInit{Source: "None", User: "me"} }),
		"cloud-init-asked":   with(func(o *Options) { o.CloudInit = CloudInit{Source: "nocloud"} }),
		"config-drive": with(func(o *Options) {
			o.CloudInit = CloudInit{Source: "configdrive", User: "me", GAManageSSH: &yes}
		}),
		"instancetype": with(func(o *Options) {
			o.Instancetype, o.Preference = "u1.small", "VirtualMachinePreference/fedora"
		}),
		"instancetype-namespaced": with(func(o *Options) {
			o.Instancetype = "virtualmachineinstancetype/u1"
			o.Volumes = []Volume{{Kind: ContainerDisk, Source: "x"}, {Kind: Claim, Source: "c", Plain: true}}
		}),
		"inferred": with(func(o *Options) {
			o.InferInstancetype, o.InferPreference = Inference{Explicit: true}, Inference{Explicit: true, From: "b"}
			o.Volumes = []Volume{
				{Kind: Claim, Source: "a", BootOrder: 2},
				{Kind: Claim, Source: "b", BootOrder: 1},
				{Kind: Claim, Source: "c", ReadOnly: true},
			}
		}),
		"inferred-if-there": with(func(o *Options) { o.Volumes = []Volume{{Kind: Claim, Source: "a"}} }),
		"not-inferred": with(func(o *Options) {
			o.InferPreference.Off = true
			o.MemoryGiven = true
			o.Volumes = []Volume{{Kind: Claim, Source: "a"}}
		}),
		"imports": with(func(o *Options) {
			o.InferInstancetype.Off, o.InferPreference.Off = true, true
			o.Volumes = []Volume{
				{Kind: Import, Import: DataSource{Type: "ds", Source: "images/fedora"}},
				{Kind: Import, Import: DataSource{Type: "ds", Source: "debian"}},
				{Kind: Import, Import: DataSource{Type: "pvc", Source: "images/gold", Size: "20Gi"}, BootOrder: 1},
				{Kind: Import, Import: DataSource{Type: "blank", Size: "1Gi"}},
				{Kind: Import, Name: "snap", Import: DataSource{Type: "snapshot", Source: "images/snap"}},
				{
					Kind: Import, Name: "gcs",
					Import: DataSource{Type: "gcs", URL: "gs://x", SecretRef: "s", Size: "1Gi"},
				},
				{
					Kind: Import, Name: "http",
					Import: DataSource{
						Type: "http", URL: "https://x", SecretRef: "s", CertConfigMap: "c",
						ExtraHeaders: []string{"A: b"}, SecretExtraHeaders: []string{"t"}, Size: "1Gi",
					},
				},
				{
					Kind: Import, Name: "imageio",
					Import: DataSource{
						Type: "imageio", URL: "https://x", DiskID: "d", SecretRef: "s", CertConfigMap: "c", Size: "1Gi",
					},
				},
				{
					Kind: Import, Name: "registry",
					Import: DataSource{
						Type: "registry", URL: "docker://x", PullMethod: "node", SecretRef: "s", CertConfigMap: "c",
						Size: "1Gi",
					},
				},
				{Kind: Import, Name: "stream", Import: DataSource{Type: "registry", ImageStream: "x", Size: "1Gi"}},
				{
					Kind: Import, Name: "s3",
					Import: DataSource{Type: "s3", URL: "s3://x", SecretRef: "s", CertConfigMap: "c", Size: "1Gi"},
				},
				{
					Kind: Import, Name: "vddk",
					Import: DataSource{
						Type: "vddk", URL: "https://x", UUID: "u", ThumbPrint: "t", SecretRef: "s", BackingFile: "b",
						InitImageURL: "i", Size: "1Gi",
					},
				},
			}
		}),
		"inferred-from-import": with(func(o *Options) {
			o.Volumes = []Volume{{Kind: Import, Name: "a", Import: DataSource{Type: "ds", Source: "fedora"}}}
		}),
		"sysprep": with(func(o *Options) { o.Sysprep = Sysprep{Name: "answers"} }),
		"sysprep-secret": with(func(o *Options) {
			o.Preference, o.Sysprep = "windows", Sysprep{Name: "answers", Type: "Secret"}
		}),
		"access-credentials": with(func(o *Options) {
			o.CloudInit.User = "me"
			o.AccessCredentials = []AccessCredential{
				{Source: "keys"},
				{Type: "ssh", Source: "more", Method: "ga", User: "you"},
				{Type: "password", Source: "pws"},
			}
		}),
		"access-credentials-nocloud": with(func(o *Options) {
			o.AccessCredentials = []AccessCredential{{Source: "keys", Method: "noCloud"}}
		}),
		"access-credentials-configdrive": with(func(o *Options) {
			o.AccessCredentials = []AccessCredential{{Source: "keys", Method: "configdrive"}}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			vm, err := VM(o)
			if err != nil {
				t.Fatal(err)
			}
			manifest, err := Manifest(vm)
			if err != nil {
				t.Fatal(err)
			}
			compareGolden(t, name, manifest)
		})
	}
}

func TestVMRefuses(t *testing.T) {
	for want, change := range map[string]func(*Options){
		`name: "" is no name`:                    func(o *Options) { o.Name = "" },
		`run-strategy: "Never" is not one of`:    func(o *Options) { o.RunStrategy = "Never" },
		`memory: "x" is not a quantity`:          func(o *Options) { o.Memory = "x" },
		`memory: "0": must be more than 0`:       func(o *Options) { o.Memory = "0" },
		`termination-grace-period: -1: must not`: func(o *Options) { o.TerminationGracePeriodSeconds = -1 },
		`volume demo-containerdisk-0: the image is missing`: func(o *Options) {
			o.Volumes = []Volume{{Kind: ContainerDisk}}
		},
		`volume x: unknown kind "tape"`: func(o *Options) { o.Volumes = []Volume{{Kind: "tape", Name: "x"}} },
		`volume a: another volume has the same name`: func(o *Options) {
			o.Volumes = []Volume{{Kind: Empty, Source: "1Gi", Name: "a"}, {Kind: Empty, Source: "1Gi", Name: "a"}}
		},
		`instancetype: "flavour" is not one of virtualmachineinstancetype, `: func(o *Options) {
			o.Instancetype = "flavour/x"
		},
		`preference: "X" is no name`: func(o *Options) { o.Preference = "X" },
		`infer-instancetype: there is no volume to infer from`: func(o *Options) {
			o.InferInstancetype.Explicit = true
		},
		`infer-preference-from: there is no volume named "x"`: func(o *Options) {
			o.InferPreference = Inference{Explicit: true, From: "x"}
		},
		`infer-preference: volume "demo-containerdisk-0" is neither a claim nor imported`: func(o *Options) {
			o.InferPreference.Explicit = true
			o.Volumes = []Volume{{Kind: ContainerDisk, Source: "x"}}
		},
		`infer-preference: volume "a" is filled from what has no labels`: func(o *Options) {
			o.InferPreference.Explicit = true
			o.Volumes = []Volume{{Kind: Import, Name: "a", Import: DataSource{Type: "blank", Size: "1Gi"}}}
		},
		`volume a: a claim must be in the VM's own namespace; leave "x/" out`: func(o *Options) {
			o.Volumes = []Volume{{Kind: Claim, Name: "a", Source: "x/y"}}
		},
		`volume a: boot order 1 is that of volume c too`: func(o *Options) {
			o.Volumes = []Volume{
				{Kind: Claim, Source: "c", BootOrder: 1},
				{Kind: Claim, Name: "a", Source: "d", BootOrder: 1},
			}
		},
		`mac: "x" is not an Ethernet address such as 02:12:34:56:78:9a`: func(o *Options) { o.MAC = "x" },
		`mac: "01:00:5e:00:00:01" is not the address of one interface`: func(o *Options) {
			o.MAC = "01:00:5e:00:00:01"
		},
		`disk-bus: "ide" is not one of virtio, sata, scsi, usb`: func(o *Options) { o.DiskBus = "ide" },
		`disk-bus: sata has no read-only disks, as a is`: func(o *Options) {
			o.DiskBus = "sata"
			o.Volumes = []Volume{{Kind: Claim, Source: "a", ReadOnly: true}}
		},
		`volume-import: url is missing; type http needs it`: func(o *Options) {
			o.Volumes = []Volume{{Kind: Import, Name: "a", Field: "volume-import", Import: DataSource{Type: "http"}}}
		},
		`volume a size: 10 is less than 1Mi; a quantity has a unit`: func(o *Options) {
			o.Volumes = []Volume{{Kind: Empty, Name: "a", Source: "10"}}
		},
		`volume-import: size is missing`: func(o *Options) {
			o.Volumes = []Volume{{Kind: Import, Name: "a", Field: "volume-import", Import: DataSource{Type: "blank"}}}
		},
		`volume-import: src "x" is not NAMESPACE/NAME`: func(o *Options) {
			o.Volumes = []Volume{
				{Kind: Import, Name: "a", Field: "volume-import", Import: DataSource{Type: "pvc", Source: "x"}},
			}
		},
		`volume-import: exactly one of url and imagestream`: func(o *Options) {
			o.Volumes = []Volume{
				{Kind: Import, Name: "a", Field: "volume-import", Import: DataSource{Type: "registry"}},
			}
		},
		`volume-import: type "tape" is not one of`: func(o *Options) {
			o.Volumes = []Volume{{Kind: Import, Name: "a", Field: "volume-import", Import: DataSource{Type: "tape"}}}
		},
		`volume-sysprep: type "tape" is not one of`: func(o *Options) { o.Sysprep = Sysprep{Name: "a", Type: "tape"} },
		`volume-sysprep: src is missing`:            func(o *Options) { o.Sysprep = Sysprep{Type: "secret"} },
		`access-cred: user is missing`: func(o *Options) {
			o.AccessCredentials = []AccessCredential{{Source: "a"}}
		},
		`access-cred: method nocloud and --cloud-init configDrive do not go`: func(o *Options) {
			o.CloudInit.Source = CloudInitConfigDrive
			o.AccessCredentials = []AccessCredential{{Source: "a", Method: "nocloud"}}
		},
		`access-cred: user goes with method ga only`: func(o *Options) {
			o.AccessCredentials = []AccessCredential{{Source: "a", Method: "nocloud", User: "u"}}
		},
		`access-cred: method "x" is not one of ga`: func(o *Options) {
			o.AccessCredentials = []AccessCredential{{Type: "password", Source: "a", Method: "x"}}
		},
		`access-cred: type "x" is not one of ssh, password`: func(o *Options) {
			o.AccessCredentials = []AccessCredential{{Type: "x", Source: "a"}}
		},
		`cloud-init: "cd" is not one of noCloud, configDrive, none`: func(o *Options) { o.CloudInit.Source = "cd" },
		`cloud-init-user-data: 2049 bytes; more than 2048`: func(o *Options) {
			o.CloudInit.UserData = strings.Repeat("YWFh", 683)
		},
	} {
		o := base()
		change(&o)
		_, err := VM(o)
		var field *FieldError
		if !errors.As(err, &field) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want a FieldError %q…", err, want)
		}
	}
}

// Names that the server takes are taken here, too, and no others.
func TestNames(t *testing.T) {
	for _, name := range []string{
		"demo", "demo.shop", strings.Repeat("a", 64), strings.Repeat("a", 253), strings.Repeat("a", 254), "", "-a", "A",
		"a..b",
	} {
		o := Options{
			Name: "demo", RunStrategy: "Always", Memory: "1Gi",
			Volumes: []Volume{{Kind: ContainerDisk, Source: "x"}},
		}
		vm, err := VM(o)
		if err != nil {
			t.Fatal(err)
		}
		vm.Name = name
		wrong, _ := Check(vm)
		o.Name = name
		if _, err := VM(o); (err != nil) != (len(wrong) > 0) {
			t.Errorf("%q: %v here, %v at the server", name, err, wrong)
		}
	}
}

// A generated name is a label whatever the VM is called.
func TestGeneratedName(t *testing.T) {
	long := strings.Repeat("a", 63)
	for _, test := range []struct {
		vm, want string
		v        Volume
	}{
		{"demo", "demo-containerdisk-3", Volume{Kind: ContainerDisk}},
		{"demo", "a-b", Volume{Kind: Claim, Source: "a.b"}},
		{"demo.shop", "demo-shop-containerdisk-3", Volume{Kind: ContainerDisk}},
		{long, long[:63-len("-containerdisk-3")] + "-containerdisk-3", Volume{Kind: ContainerDisk}},
		{long[:46] + "-aaaaaaaaaaaaaaaa", long[:46] + "-containerdisk-3", Volume{Kind: ContainerDisk}},
		{"demo", long, Volume{Kind: Claim, Source: long}},
		{long, long[:63-len("-ds-x")] + "-ds-x", Volume{Kind: Import, Import: DataSource{Type: "ds", Source: "ns/x"}}},
		{"demo", "demo-blank-3", Volume{Kind: Import, Import: DataSource{Type: "blank"}}},
	} {
		if got := generatedName(test.vm, test.v, 3); got != test.want {
			t.Errorf("%s %+v: got %s, want %s", test.vm, test.v, got, test.want)
		}
	}
}

func TestKindsGolden(t *testing.T) {
	for name, build := range map[string]func() (*unstructured.Unstructured, error){
		"kind-instancetype": func() (*unstructured.Unstructured, error) {
			return Instancetype(InstancetypeOptions{
				Scope: Scope{Name: "it"}, CPU: 2, Memory: "2Gi", IOThreadsPolicy: "shared",
				GPUs: []Device{{"g", "vendor/gpu"}}, HostDevices: []Device{{"h", "vendor/dev"}},
			})
		},
		"kind-instancetype-namespaced": func() (*unstructured.Unstructured, error) {
			return Instancetype(InstancetypeOptions{
				Scope: Scope{Name: "it", Namespaced: true, Namespace: "shop"}, CPU: 1, Memory: "1Gi",
			})
		},
		"kind-preference": func() (*unstructured.Unstructured, error) {
			return Preference(PreferenceOptions{
				Scope: Scope{Name: "p"}, VolumeStorageClass: "fast", MachineType: "q35", CPUTopology: "preferCores",
			})
		},
		"kind-preference-namespaced": func() (*unstructured.Unstructured, error) {
			return Preference(PreferenceOptions{Scope: Scope{Name: "p", Namespaced: true}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			object, err := build()
			if err != nil {
				t.Fatal(err)
			}
			compareGolden(t, name, object)
		})
	}
	for want, build := range map[string]func() (*unstructured.Unstructured, error){
		`cpu: must be 1 or more`: func() (*unstructured.Unstructured, error) {
			return Instancetype(InstancetypeOptions{Scope: Scope{Name: "a"}, Memory: "1Gi"})
		},
		`memory: "" is not a quantity`: func() (*unstructured.Unstructured, error) {
			return Instancetype(InstancetypeOptions{Scope: Scope{Name: "a"}, CPU: 1})
		},
		`name: "A" is no name`: func() (*unstructured.Unstructured, error) {
			return Preference(PreferenceOptions{Scope: Scope{Name: "A"}})
		},
		`cpu-topology: "round" is not one of`: func() (*unstructured.Unstructured, error) {
			return Preference(PreferenceOptions{Scope: Scope{Name: "a"}, CPUTopology: "round"})
		},
	} {
		if _, err := build(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func compareGolden(t *testing.T, name string, manifest *unstructured.Unstructured) {
	t.Helper()
	got, err := yaml.Marshal(manifest.Object)
	if err != nil {
		t.Fatal(err)
	}
	golden := filepath.Join("testdata", name+".yaml")
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s, -want +got; -update rewrites it\n%s", golden, diff)
	}
}

package create

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func base() Options {
	return Options{Name: "demo", Memory: "512Mi", TerminationGracePeriodSeconds: 180}
}

func TestVMGolden(t *testing.T) {
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
		"cloud-init-account": with(func(o *Options) {
			o.CloudInit = CloudInit{User: "me", Password: "a: \"b\" #c", SSHKeys: []string{"ssh-ed25519 AAAA me@here"}}
		}),
		"cloud-init-data":    with(func(o *Options) { o.CloudInit = CloudInit{UserData: "eA==", NetworkData: "eQ=="} }),
		"cloud-init-network": with(func(o *Options) { o.CloudInit = CloudInit{NetworkData: "eQ=="} }),
		"cloud-init-none":    with(func(o *Options) { o.CloudInit = CloudInit{Source: "None"} }),
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
		})
	}
}

func TestVMRefuses(t *testing.T) {
	for want, change := range map[string]func(*Options){
		`name: "" is no name`:                               func(o *Options) { o.Name = "" },
		`run-strategy: "Never" is not one of`:               func(o *Options) { o.RunStrategy = "Never" },
		`memory: "x" is not a quantity`:                     func(o *Options) { o.Memory = "x" },
		`memory: "0": must be more than 0`:                  func(o *Options) { o.Memory = "0" },
		`termination-grace-period: -1: must not`:            func(o *Options) { o.TerminationGracePeriodSeconds = -1 },
		`volume demo-containerdisk-0: the image is missing`: func(o *Options) { o.Volumes = []Volume{{Kind: ContainerDisk}} },
		`volume x: unknown kind "tape"`:                     func(o *Options) { o.Volumes = []Volume{{Kind: "tape", Name: "x"}} },
		`volume a: another volume has the same name`: func(o *Options) {
			o.Volumes = []Volume{{Kind: Empty, Source: "1Gi", Name: "a"}, {Kind: Empty, Source: "1Gi", Name: "a"}}
		},
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

// A generated name is a label whatever the VM is called.
func TestGeneratedName(t *testing.T) {
	long := strings.Repeat("a", 63)
	for _, test := range []struct {
		vm, want string
		v        Volume
	}{
		{"demo", "demo-containerdisk-3", Volume{Kind: ContainerDisk}},
		{"demo", "demo-pvc-a-b", Volume{Kind: Claim, Source: "a.b"}},
		{long, long[:63-len("-containerdisk-3")] + "-containerdisk-3", Volume{Kind: ContainerDisk}},
		{long[:46] + "-aaaaaaaaaaaaaaaa", long[:46] + "-containerdisk-3", Volume{Kind: ContainerDisk}},
		{"demo", "pvc-" + long[:59], Volume{Kind: Claim, Source: long[:59]}},
	} {
		if got := generatedName(test.vm, test.v, 3); got != test.want {
			t.Errorf("%s %+v: got %s, want %s", test.vm, test.v, got, test.want)
		}
	}
}

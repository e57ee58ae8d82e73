package config

import (
	"context"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/surface"
)

// TestFromKubeVirt has a case for every field that is honoured.
func TestFromKubeVirt(t *testing.T) {
	cases := map[string]struct {
		set  func(*v1.KubeVirt)
		want func(*Config)
	}{
		"nothing": {func(*v1.KubeVirt) {}, func(*Config) {}},
		"no backup hooks": {
			func(kv *v1.KubeVirt) { kv.Annotations = map[string]string{"kubevirt.io/skip-backup-hooks": "true"} },
			func(c *Config) { c.SkipBackupHooks = true },
		},
		"useEmulation": {
			func(kv *v1.KubeVirt) {
				kv.Spec.Configuration.DeveloperConfiguration = &v1.DeveloperConfiguration{UseEmulation: true}
			},
			func(c *Config) { c.UseEmulation = true },
		},
		"developer configuration": {
			func(kv *v1.KubeVirt) {
				kv.Spec.Configuration.DeveloperConfiguration = &v1.DeveloperConfiguration{
					CPUAllocationRatio: 4, MemoryOvercommit: 150, NodeSelectors: map[string]string{"a": "b"},
					MinimumClusterTSCFrequency: new(int64(7)),
				}
			},
			func(c *Config) {
				c.CPUAllocationRatio, c.MemoryOvercommit, c.NodeSelectors, c.LowestTSC = 4, 150,
					map[string]string{"a": "b"}, 7
			},
		},
		"machine type": {
			func(kv *v1.KubeVirt) { kv.Spec.Configuration.MachineType = "pc-q35-9.2" },
			func(c *Config) { c.MachineType = "pc-q35-9.2" },
		},
		"machine type by architecture wins": {
			func(kv *v1.KubeVirt) {
				kv.Spec.Configuration.MachineType = "pc-q35-9.2"
				kv.Spec.Configuration.ArchitectureConfiguration = &v1.ArchConfiguration{
					DefaultArchitecture: "arm64",
					Amd64:               &v1.ArchSpecificConfiguration{MachineType: "pc"},
					Arm64:               &v1.ArchSpecificConfiguration{MachineType: "virt"},
				}
			},
			func(c *Config) { c.Architecture, c.MachineType = "arm64", "virt" },
		},
		"log verbosity": {
			func(kv *v1.KubeVirt) {
				kv.Spec.Configuration.DeveloperConfiguration = &v1.DeveloperConfiguration{
					LogVerbosity: &v1.LogVerbosity{
						VirtAPI: 3, VirtController: 4, VirtHandler: 5, VirtLauncher: 6,
						NodeVerbosity: map[string]uint{"node1": 7},
					},
				}
			},
			func(c *Config) {
				c.LogVerbosity = LogVerbosity{
					API: 3, Controller: 4, Handler: 5, Launcher: 6, Nodes: map[string]uint{"node1": 7},
				}
			},
		},
		"gates": {
			func(kv *v1.KubeVirt) {
				kv.Spec.Configuration.DeveloperConfiguration = &v1.DeveloperConfiguration{
					FeatureGates: []string{surface.GateHostDisk, "Snapshot"},
				}
			},
			func(c *Config) { c.Allowed.Gates = surface.Gates{surface.GateHostDisk: true} },
		},
		"network": {
			func(kv *v1.KubeVirt) {
				kv.Spec.Configuration.NetworkConfiguration = &v1.NetworkConfiguration{
					NetworkInterface: "bridge", PermitBridgeInterfaceOnPodNetwork: new(false),
				}
			},
			func(c *Config) { c.Bridge, c.Allowed.NoBridge = true, true },
		},
		"devices of nodes": {
			func(kv *v1.KubeVirt) {
				kv.Spec.Configuration.PermittedHostDevices = &v1.PermittedHostDevices{
					PciHostDevices: []v1.PciHostDevice{{PCIVendorSelector: "10de:1eb8", ResourceName: "v/gpu"}},
				}
			},
			func(c *Config) {
				c.HostDevices = &v1.PermittedHostDevices{
					PciHostDevices: []v1.PciHostDevice{{PCIVendorSelector: "10de:1eb8", ResourceName: "v/gpu"}},
				}
				c.Allowed.Devices = map[string]bool{"v/gpu": true}
			},
		},
		"references": {
			func(kv *v1.KubeVirt) {
				kv.Spec.Configuration.Instancetype = &v1.InstancetypeConfiguration{ReferencePolicy: new(v1.ExpandAll)}
			},
			func(c *Config) { c.ReferencePolicy = v1.ExpandAll },
		},
		"smbios": {
			func(kv *v1.KubeVirt) { kv.Spec.Configuration.SMBIOSConfig = &v1.SMBiosConfiguration{Sku: "s"} },
			func(c *Config) { c.SMBIOS.Sku = "s" },
		},
		"cpu model": {
			func(kv *v1.KubeVirt) { kv.Spec.Configuration.CPUModel = "Nehalem" },
			func(c *Config) { c.CPUModel = "Nehalem" },
		},
		"cpu request": {
			func(kv *v1.KubeVirt) { kv.Spec.Configuration.CPURequest = new(resource.MustParse("50m")) },
			func(c *Config) { c.CPURequest = new(resource.MustParse("50m")) },
		},
		"pull policy": {
			func(kv *v1.KubeVirt) { kv.Spec.Configuration.ImagePullPolicy = corev1.PullAlways },
			func(c *Config) { c.ImagePullPolicy = corev1.PullAlways },
		},
		"runtime class": {
			func(kv *v1.KubeVirt) { kv.Spec.Configuration.DefaultRuntimeClass = "kata" },
			func(c *Config) { c.RuntimeClass = "kata" },
		},
		"eviction": {
			func(kv *v1.KubeVirt) { kv.Spec.Configuration.EvictionStrategy = new(v1.EvictionStrategyLiveMigrate) },
			func(c *Config) { c.EvictionStrategy = v1.EvictionStrategyLiveMigrate },
		},
		"migrations": {
			func(kv *v1.KubeVirt) {
				kv.Spec.Configuration.MigrationConfiguration = &v1.MigrationConfiguration{
					ParallelMigrationsPerCluster: new(uint32(9)), ParallelOutboundMigrationsPerNode: new(uint32(8)),
					BandwidthPerMigration: new(resource.MustParse("1Gi")), CompletionTimeoutPerGiB: new(int64(7)),
					ProgressTimeout:   new(int64(0)),
					AllowAutoConverge: new(true), AllowPostCopy: new(true), UnsafeMigrationOverride: new(true),
					NodeDrainTaintKey: new("leave"),
				}
			},
			func(c *Config) {
				c.Migrations = v1.MigrationConfiguration{
					ParallelMigrationsPerCluster: new(uint32(9)), ParallelOutboundMigrationsPerNode: new(uint32(8)),
					BandwidthPerMigration: new(resource.MustParse("1Gi")), CompletionTimeoutPerGiB: new(int64(7)),
					ProgressTimeout:   new(int64(0)),
					AllowAutoConverge: new(true), AllowPostCopy: new(true), UnsafeMigrationOverride: new(true),
					AllowWorkloadDisruption: new(true), NodeDrainTaintKey: new("leave"),
				}
			},
		},
		"overhead ratio": {
			func(kv *v1.KubeVirt) { kv.Spec.Configuration.AdditionalGuestMemoryOverheadRatio = new("1.5") },
			func(c *Config) { c.MemoryOverheadRatio = 1.5 },
		},
		"certificates": {
			func(kv *v1.KubeVirt) {
				kv.Spec.CertificateRotationStrategy.SelfSigned = &v1.KubeVirtSelfSignConfiguration{
					CA: &v1.CertConfig{Duration: &metav1.Duration{Duration: 100 * time.Hour}},
					Server: &v1.CertConfig{
						Duration:    &metav1.Duration{Duration: 10 * time.Hour},
						RenewBefore: &metav1.Duration{Duration: time.Hour},
					},
				}
			},
			func(c *Config) {
				c.Certificates.AuthorityLifetime, c.Certificates.AuthorityRenewBefore = 100*time.Hour, 20*time.Hour
				c.Certificates.LeafLifetime, c.Certificates.LeafRenewBefore = 10*time.Hour, time.Hour
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			kv := &v1.KubeVirt{}
			c.set(kv)
			want := Default()
			c.want(&want)
			got, err := FromKubeVirt(kv)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
	for _, bad := range []string{"much", "0.5", ""} {
		kv := &v1.KubeVirt{}
		kv.Spec.Configuration.AdditionalGuestMemoryOverheadRatio = &bad
		kv.Spec.Configuration.MachineType = "pc"
		got, err := FromKubeVirt(kv)
		if err == nil || got.MemoryOverheadRatio != 1 || got.MachineType != "pc" {
			t.Errorf("ratio %q: %+v, error %v", bad, got, err)
		}
	}
	loud := &v1.KubeVirt{}
	loud.Spec.Configuration.DeveloperConfiguration = &v1.DeveloperConfiguration{
		LogVerbosity: &v1.LogVerbosity{VirtAPI: 10},
	}
	if got, err := FromKubeVirt(loud); err == nil || got.LogVerbosity.API != 0 {
		t.Errorf("a verbosity of 10: %+v, error %v", got.LogVerbosity, err)
	}
	verbosity := LogVerbosity{Handler: 3, Nodes: map[string]uint{"a": 5}}
	if verbosity.OfHandler("a") != 5 || verbosity.OfHandler("b") != 3 {
		t.Errorf("verbosity of nodes: %d, %d", verbosity.OfHandler("a"), verbosity.OfHandler("b"))
	}
	if got, err := FromKubeVirt(nil); err != nil || !reflect.DeepEqual(got, Default()) {
		t.Errorf("no resource: %+v, %v", got, err)
	}
}

// plainList keeps the informer from asking the fake for a streamed list.
type plainList struct{ *cache.ListWatch }

func (plainList) IsWatchListSemanticsUnSupported() bool { return true }

func TestFollower(t *testing.T) {
	watcher := watch.NewFakeWithChanSize(10, false)
	follower := newFollower(plainList{&cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return &v1.KubeVirtList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			return watcher, nil
		},
		DisableChunking: true,
	}})
	changed := make(chan struct{}, 10)
	levels := make(chan uint, 10)
	follower.OnVerbosity(1, func(v LogVerbosity) uint { return v.API }, func(level uint) { levels <- level })
	follower.OnChange(func() { changed <- struct{}{} })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- follower.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	wait := func(ch <-chan struct{}) {
		t.Helper()
		select {
		case <-ch:
		case <-time.After(time.Minute):
			t.Fatal("timed out")
		}
	}

	kv := func(version, machine string) *v1.KubeVirt {
		kv := &v1.KubeVirt{
			ObjectMeta: metav1.ObjectMeta{Name: "kubevirt", Namespace: "kubevirt", ResourceVersion: version},
		}
		kv.Spec.Configuration.MachineType = machine
		return kv
	}
	wait(follower.Ready())
	watcher.Add(kv("2", "pc"))
	wait(changed)
	if got := follower.Current().MachineType; got != "pc" {
		t.Errorf("machine type %q", got)
	}
	watcher.Modify(kv("3", "pc")) // Says nothing new, so nobody is told.
	watcher.Delete(kv("4", "pc"))
	wait(changed)
	if got := follower.Current().MachineType; got != surface.DefaultMachineType {
		t.Errorf("machine type %q after the resource is gone", got)
	}
	if a, b := <-levels, <-levels; a != 1 || b != 1 {
		t.Errorf("verbosities %d, %d where the resource says nothing", a, b)
	}
	if len(changed) > 0 {
		t.Error("a change was told that is none")
	}
}

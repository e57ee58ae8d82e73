// Package config is what the KubeVirt resource's spec.configuration says, as far as virtkit honours
// it: FromKubeVirt turns the resource into a Config with every default filled in, and a Follower
// keeps the current one for a component, live.
package config

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/certs"
	"github.com/virtkit/virtkit/pkg/vm/sizing"
	"github.com/virtkit/virtkit/pkg/vm/surface"
)

// Defaults that apply where the KubeVirt resource is silent; KubeVirt's own.
const (
	DefaultCPUAllocationRatio = 10
	DefaultMemoryOvercommit   = 100
)

// Config is the configuration of an installation. Treat it as read-only: it is shared.
type Config struct {
	// UseEmulation allows guests under software emulation (TCG): pods do not ask for KVM.
	UseEmulation bool
	// Architecture is that of a guest that names none: amd64 or arm64.
	Architecture string
	// MachineType is the machine of a guest that names none.
	MachineType string
	// CPUModel is the CPU model of a guest that names none; empty leaves it to the launcher.
	CPUModel string
	// ObsoleteCPUModels are those for which nodes get no label.
	ObsoleteCPUModels map[string]bool
	// LowestTSC is the frequency of time stamp counters that is given to guests which keep theirs when they move, ticks
	// a second; 0 is the lowest of the nodes'.
	LowestTSC int64
	// CPURequest is requested for a guest's pod that names no request; nil means by the ratio.
	CPURequest *resource.Quantity
	// CPUAllocationRatio is how many vCPUs share one requested CPU.
	CPUAllocationRatio int
	// MemoryOvercommit is the guest's memory in percent of what its pod requests for it.
	MemoryOvercommit int
	// MemoryOverheadRatio multiplies the computed overhead of a launcher pod; 1 unless given.
	MemoryOverheadRatio float64
	// ImagePullPolicy is that of launcher pods; empty leaves it to the component's flag.
	ImagePullPolicy corev1.PullPolicy
	// EvictionStrategy is that of a guest that names none; empty means the default (pkg/vm/eviction).
	EvictionStrategy v1.EvictionStrategy
	// NodeSelectors are added to every launcher pod's.
	NodeSelectors map[string]string
	// RuntimeClass is the runtime class of launcher pods; empty means the node's default.
	RuntimeClass string
	// VMStateStorageClass is the class of the claims for persistent TPMs and EFI variables; empty means the
	// cluster's default.
	VMStateStorageClass string
	// BalloonPeriod is how often guests report their memory statistics, seconds; 0 is never.
	BalloonPeriod uint32
	// KeepFreePages says that guests do not give back memory that they do not use.
	KeepFreePages bool
	// SerialConsoleLog gives guests that do not say a container whose log is their serial console.
	SerialConsoleLog bool
	// SkipBackupHooks says that launcher pods have no hooks of backup programs, unless a guest says otherwise.
	SkipBackupHooks bool
	// Support is what containers beside a guest's ask for.
	Support Support
	// LimitedNamespaces are those whose guests have no more CPU time than their vCPUs; nil for none.
	LimitedNamespaces labels.Selector
	// InstancesPerNode is how many guests with KVM a node offers to hold.
	InstancesPerNode int
	// LogVerbosity is how much the components say.
	LogVerbosity LogVerbosity
	// RateLimits are of the components' requests to the API server.
	RateLimits RateLimits
	// Certificates says how long certificates live.
	Certificates certs.Policy
	// LiveUpdate is how far guests may grow while they run that do not say; nil is not at all, and no change of a VM's
	// size reaches its guest before the next start (vmRolloutStrategy Stage).
	LiveUpdate *sizing.Bounds
	// Allowed is what guests may have.
	Allowed surface.Allowed
	// HostDevices are the devices of nodes that guests may have; nil for none.
	HostDevices *v1.PermittedHostDevices
	// Bridge gives interfaces of the pod network that name no binding a bridge, in place of masquerade.
	Bridge bool
	// ReferencePolicy is what becomes of a VM's instance type and preference; empty keeps them as references.
	ReferencePolicy v1.InstancetypeReferencePolicy
	// SMBIOS is how guests' machines call themselves; empty fields leave it to the launcher.
	SMBIOS v1.SMBiosConfiguration
	// Migrations is how guests move, without nil where surface.Migrations fills it in.
	Migrations v1.MigrationConfiguration
}

// Default returns the configuration of an installation whose KubeVirt resource says nothing.
func Default() Config {
	return Config{
		Architecture:        runtime.GOARCH,
		MachineType:         surface.DefaultMachineType,
		CPUAllocationRatio:  DefaultCPUAllocationRatio,
		MemoryOvercommit:    DefaultMemoryOvercommit,
		MemoryOverheadRatio: 1,
		BalloonPeriod:       names.DefaultBalloonPeriod,
		Certificates:        certs.DefaultPolicy(),
		Migrations:          surface.Migrations(nil),
		ObsoleteCPUModels:   obsoleteCPUModels(),
		LiveUpdate:          &sizing.Bounds{Ratio: sizing.DefaultRatio},
		InstancesPerNode:    DefaultInstancesPerNode,
	}
}

// FromKubeVirt reads a KubeVirt resource; nil gives the defaults. The error names the field that
// cannot be read; the Config is complete all the same, with that field at its default.
func FromKubeVirt(kv *v1.KubeVirt) (Config, error) {
	config := Default()
	if kv == nil {
		return config, nil
	}
	config.SkipBackupHooks = SkipsBackupHooks(kv.Annotations)
	spec := kv.Spec.Configuration
	if spec.ArchitectureConfiguration != nil {
		setIf(&config.Architecture, spec.ArchitectureConfiguration.DefaultArchitecture)
	}
	setIf(&config.MachineType, machineType(spec, config.Architecture))
	setIf(&config.CPUModel, spec.CPUModel)
	maps.Copy(config.ObsoleteCPUModels, spec.ObsoleteCPUModels)
	config.CPURequest = spec.CPURequest
	setIf(&config.ImagePullPolicy, spec.ImagePullPolicy)
	setIf(&config.RuntimeClass, spec.DefaultRuntimeClass)
	setIf(&config.VMStateStorageClass, spec.VMStateStorageClass)
	if spec.MemBalloonStatsPeriod != nil {
		config.BalloonPeriod = *spec.MemBalloonStatsPeriod
	}
	config.KeepFreePages = spec.VirtualMachineOptions != nil &&
		spec.VirtualMachineOptions.DisableFreePageReporting != nil
	config.SerialConsoleLog = surface.OpenGates(spec.DeveloperConfiguration)[surface.GateSerialConsoleLog] &&
		(spec.VirtualMachineOptions == nil || spec.VirtualMachineOptions.DisableSerialConsoleLog == nil)
	if spec.EvictionStrategy != nil {
		config.EvictionStrategy = *spec.EvictionStrategy
	}
	if developer := spec.DeveloperConfiguration; developer != nil {
		config.UseEmulation = developer.UseEmulation
		setIf(&config.CPUAllocationRatio, developer.CPUAllocationRatio)
		setIf(&config.MemoryOvercommit, developer.MemoryOvercommit)
		config.NodeSelectors = maps.Clone(developer.NodeSelectors)
		if developer.MinimumClusterTSCFrequency != nil {
			config.LowestTSC = max(*developer.MinimumClusterTSCFrequency, 0)
		}
	}
	config.Allowed = surface.AllowedBy(&spec, config.Architecture)
	config.HostDevices = spec.PermittedHostDevices
	if spec.NetworkConfiguration != nil {
		config.Bridge = spec.NetworkConfiguration.NetworkInterface == "bridge"
	}
	if spec.Instancetype != nil && spec.Instancetype.ReferencePolicy != nil &&
		*spec.Instancetype.ReferencePolicy != v1.Reference {
		config.ReferencePolicy = *spec.Instancetype.ReferencePolicy
	}
	if spec.SMBIOSConfig != nil {
		config.SMBIOS = *spec.SMBIOSConfig
	}
	config.RateLimits = RateLimits{
		API: rateLimit(spec.APIConfiguration), Controller: rateLimit(spec.ControllerConfiguration),
		Handler: rateLimit(spec.HandlerConfiguration),
	}
	config.Migrations = surface.Migrations(spec.MigrationConfiguration)
	config.LiveUpdate = liveUpdate(spec)
	setRotation(&config.Certificates, kv.Spec.CertificateRotationStrategy.SelfSigned)
	config.Support = support(spec.SupportContainerResources)
	if n := spec.VirtualMachineInstancesPerNode; n != nil {
		config.InstancesPerNode = *n
	}
	var wrong error
	config.LimitedNamespaces, wrong = limitedNamespaces(spec.AutoCPULimitNamespaceLabelSelector)
	if developer := spec.DeveloperConfiguration; developer != nil {
		wrong = errors.Join(wrong, setVerbosity(&config.LogVerbosity, developer.LogVerbosity))
	}

	if text := spec.AdditionalGuestMemoryOverheadRatio; text != nil {
		ratio, err := strconv.ParseFloat(*text, 64)
		if err != nil || ratio < 1 {
			return config,
				errors.Join(wrong, fmt.Errorf("spec.configuration.additionalGuestMemoryOverheadRatio: %q is not a "+
					"number of at least 1", *text))
		}
		config.MemoryOverheadRatio = ratio
	}
	return config, wrong
}

// SkipsBackupHooks says whether annotations of a KubeVirt resource or a VMI ask for no hooks of backup programs.
func SkipsBackupHooks(annotations map[string]string) bool {
	skip, err := strconv.ParseBool(annotations[names.AnnotationSkipBackupHooks])
	return err == nil && skip // any other word is no, as in KubeVirt
}

// obsoleteCPUModels returns the CPU models that KubeVirt calls obsolete, and QEMU's own that no hardware has.
func obsoleteCPUModels() map[string]bool {
	out := map[string]bool{}
	for _, name := range []string{
		"486", "pentium", "pentium2", "pentium3", "pentiumpro", "coreduo", "n270", "core2duo", "Conroe",
		"athlon", "phenom",
		"qemu64", "qemu32", "kvm64", "kvm32", "cpu64-rhel5", "cpu64-rhel6",
	} {
		out[name] = true
	}
	return out
}

func liveUpdate(spec v1.KubeVirtConfiguration) *sizing.Bounds {
	if spec.VMRolloutStrategy != nil && *spec.VMRolloutStrategy == v1.VMRolloutStrategyStage {
		return nil
	}
	bounds := &sizing.Bounds{Ratio: sizing.DefaultRatio}
	given := spec.LiveUpdateConfiguration
	if given == nil {
		return bounds
	}
	setIf(&bounds.Ratio, given.MaxHotplugRatio)
	if given.MaxCpuSockets != nil {
		bounds.MaxSockets = *given.MaxCpuSockets
	}
	if given.MaxGuest != nil {
		bounds.MaxGuest = given.MaxGuest.Value()
	}
	return bounds
}

func machineType(spec v1.KubeVirtConfiguration, architecture string) string {
	var specific *v1.ArchSpecificConfiguration
	if architectures := spec.ArchitectureConfiguration; architectures != nil {
		switch architecture {
		case "amd64":
			specific = architectures.Amd64
		case "arm64":
			specific = architectures.Arm64
		}
	}
	if specific != nil && specific.MachineType != "" {
		return specific.MachineType
	}
	return spec.MachineType
}

func setRotation(policy *certs.Policy, strategy *v1.KubeVirtSelfSignConfiguration) {
	if strategy == nil {
		return
	}
	setLifetime(&policy.AuthorityLifetime, &policy.AuthorityRenewBefore, strategy.CA)
	setLifetime(&policy.LeafLifetime, &policy.LeafRenewBefore, strategy.Server)
}

func setLifetime(lifetime, renewBefore *time.Duration, config *v1.CertConfig) {
	if config == nil {
		return
	}
	if d := config.Duration; d != nil && d.Duration > 0 {
		*lifetime, *renewBefore = d.Duration, d.Duration/5 // a fifth of its life, unless said otherwise below
	}
	if d := config.RenewBefore; d != nil && d.Duration > 0 {
		*renewBefore = d.Duration
	}
}

// setIf overwrites a default with a value that was given.
func setIf[T comparable](target *T, value T) {
	var zero T
	if value != zero {
		*target = value
	}
}

// Package vmicontroller is the reconciler VirtualMachineInstance → Pod. Its inputs are the VMI, its pods, its claims
// and the configuration; its outputs are one pod, the VMI's status up to phase Scheduled, from which on virt-handler
// writes it, and the end of the VMI's finalizer when no pod is left.
//
// The core is pure: Pod (this file) plans the pod, and Next (next.go) decides what to do; the Reconciler
// (reconciler.go) reads, asks them, and writes.
package vmicontroller

import (
	"cmp"
	"maps"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/config"
	"github.com/virtkit/virtkit/pkg/vm/identity"
	"github.com/virtkit/virtkit/pkg/vm/ipaddress"
	"github.com/virtkit/virtkit/pkg/vm/launcherlog"
	"github.com/virtkit/virtkit/pkg/vm/life"
	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/passthrough"
	"github.com/virtkit/virtkit/pkg/vm/qos"
	"github.com/virtkit/virtkit/pkg/vm/sizing"
)

// launcherBinary is virt-launcher in its image.
const launcherBinary = "/usr/bin/virt-launcher"

// Facts holds what a launcher pod depends on besides its VMI.
type Facts struct {
	Config config.Config
	// Image and ImagePullPolicy are the launcher's; the configuration's pull policy wins.
	Image           string
	ImagePullPolicy corev1.PullPolicy
	// KVM says that some node offers hardware KVM.
	KVM bool
	// Limits are the pod's where its VMI says none.
	Limits Limits
	// Claims are the VMI's PersistentVolumeClaims that exist, by name.
	Claims map[string]*corev1.PersistentVolumeClaim
	// StateClaim is the claim that the pod has for the persistent state; "" means the one among Claims.
	StateClaim string
	// NetworkResources are the extended resources of the VMI's networks that need one, by the network's name; see
	// NetworkResources.
	NetworkResources map[string]string
	// Keepings say how the VMI's networks of Multus keep addresses, by the network's name.
	Keepings map[string]ipaddress.Keeping
	// NetworkErr is the reason why NetworkResources and Keepings are not known; no pod can be made then.
	NetworkErr error
	// FenceAfter is the time since the cluster last heard of its node after which the launcher ends its guest; 0 means
	// never.
	FenceAfter time.Duration
}

// PodName returns the name of the VMI's pod. It depends on the VMI's identity alone, so that a second one cannot be
// made, whatever was or was not seen of the first.
func PodName(vmi *v1.VirtualMachineInstance) string { return LauncherName(vmi.Name, vmi.UID) }

// LauncherName returns the name of a launcher pod of a VMI, for the object with a UID. A long name of the VMI is cut:
// the kubelet makes one directory's name of namespace, name and UID of a pod.
func LauncherName(vmi string, of types.UID) string {
	name := strings.TrimRight(vmi[:min(len(vmi), names.MaxLabel)], "-.")
	return names.VirtLauncher + "-" + name + "-" + names.Hash(string(of), 5)
}

// securityContext returns the security context of every pod of a VMI: they share volumes, so that they run as the same
// user and group.
func securityContext(sysctls ...corev1.Sysctl) *corev1.PodSecurityContext {
	return &corev1.PodSecurityContext{
		RunAsUser:           new(int64(names.User)),
		RunAsGroup:          new(int64(names.Group)),
		RunAsNonRoot:        new(true),
		FSGroup:             new(int64(names.Group)),
		FSGroupChangePolicy: new(corev1.FSGroupChangeOnRootMismatch),
		SeccompProfile:      &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		Sysctls:             sysctls,
	}
}

// Pod returns the launcher pod of a VMI. It passes Pod Security `restricted`.
func Pod(vmi *v1.VirtualMachineInstance, facts Facts) *corev1.Pod {
	volumes := planVolumes(vmi, facts)
	launcher := computeContainer(vmi, facts, volumes)
	spec := corev1.PodSpec{
		RestartPolicy:                 corev1.RestartPolicyNever,
		TerminationGracePeriodSeconds: new(podGrace(vmi)),
		AutomountServiceAccountToken:  new(false),
		EnableServiceLinks:            new(false),
		// The launcher answers DHCP on port 67.
		SecurityContext: securityContext(corev1.Sysctl{
			Name:  "net.ipv4.ip_unprivileged_port_start",
			Value: "0",
		}),
		Hostname:                  identity.Host(vmi),
		Subdomain:                 vmi.Spec.Subdomain,
		DNSPolicy:                 vmi.Spec.DNSPolicy,
		DNSConfig:                 vmi.Spec.DNSConfig.DeepCopy(),
		NodeSelector:              nodeSelector(vmi, facts),
		Affinity:                  vmi.Spec.Affinity.DeepCopy(),
		Tolerations:               tolerations(vmi.Spec.Tolerations),
		TopologySpreadConstraints: copyAll(vmi.Spec.TopologySpreadConstraints),
		PriorityClassName:         vmi.Spec.PriorityClassName,
		SchedulerName:             vmi.Spec.SchedulerName,
		ServiceAccountName:        serviceAccount(vmi),
		ImagePullSecrets:          volumes.pullSecrets,
		ReadinessGates:            []corev1.PodReadinessGate{{ConditionType: Gate}},
		Volumes:                   volumes.volumes,
	}
	spec.InitContainers = append(consoleLog(vmi, facts, &launcher),
		virtiofsdContainers(volumes.shared, logging(vmi, facts.Config).Virtiofsd, &launcher)...)
	spec.Containers = []corev1.Container{launcher}
	if facts.Config.RuntimeClass != "" {
		spec.RuntimeClassName = &facts.Config.RuntimeClass
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:        PodName(vmi),
			Namespace:   vmi.Namespace,
			Labels:      PodLabels(vmi),
			Annotations: podAnnotations(vmi, facts),
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(vmi, v1.VirtualMachineInstanceGroupVersionKind),
			},
		},
		Spec: spec,
	}
}

// computeContainer returns the launcher's container. What logs and shares add to it is added by Pod.
func computeContainer(vmi *v1.VirtualMachineInstance, facts Facts, volumes podVolumes) corev1.Container {
	c := corev1.Container{
		Name:            names.ContainerCompute,
		Image:           facts.Image,
		ImagePullPolicy: cmp.Or(facts.Config.ImagePullPolicy, facts.ImagePullPolicy),
		Command:         []string{launcherBinary},
		Args:            launcherArgs(vmi, facts.Config),
		Resources:       resources(vmi, facts),
		VolumeMounts:    volumes.mounts,
		VolumeDevices:   volumes.devices,
		Ports:           ContainerPorts(vmi),
		LivenessProbe:   probe(vmi.Spec.LivenessProbe),
		ReadinessProbe:  probe(vmi.Spec.ReadinessProbe),
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			ReadOnlyRootFilesystem:   new(true),
		},
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
	if facts.FenceAfter > 0 {
		c.Args = append(c.Args, fenceAfterFlag+facts.FenceAfter.String())
	}
	if exposesMetrics(vmi) {
		c.Env = []corev1.EnvVar{
			{Name: nodeNameVariable, ValueFrom: &corev1.EnvVarSource{
				FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "spec.nodeName"},
			}},
		}
		c.Args = append(c.Args, "--node=$("+nodeNameVariable+")")
	}
	c.Env = append(c.Env, networkVariables(facts.NetworkResources)...)
	return c
}

// logging returns the log levels of the pod's processes.
func logging(vmi *v1.VirtualMachineInstance, installation config.Config) launcherlog.Plan {
	return launcherlog.PlanOf(vmi.Labels, vmi.Annotations, installation.LogVerbosity.Launcher)
}

func launcherArgs(vmi *v1.VirtualMachineInstance, installation config.Config) []string {
	args := []string{
		"--name=" + vmi.Name,
		"--namespace=" + vmi.Namespace,
		"--uid=" + string(vmi.UID),
		"--grace-period=" + strconv.FormatInt(int64(life.Grace(vmi).Seconds()), 10) + "s",
	}
	for _, text := range []struct{ name, value string }{
		{"manufacturer", installation.SMBIOS.Manufacturer},
		{"product", installation.SMBIOS.Product},
		{"version", installation.SMBIOS.Version},
		{"sku", installation.SMBIOS.Sku},
		{"family", installation.SMBIOS.Family},
	} {
		if text.value != "" {
			args = append(args, "--smbios-"+text.name+"="+text.value)
		}
	}
	if period := installation.BalloonPeriod; period != names.DefaultBalloonPeriod {
		args = append(args, "--balloon-period="+strconv.FormatUint(uint64(period), 10))
	}
	if installation.KeepFreePages {
		args = append(args, "--keep-free-pages")
	}
	said := logging(vmi, installation)
	if said.Verbosity > 0 {
		args = append(args, "--v="+strconv.FormatUint(uint64(said.Verbosity), 10))
	}
	if said.Filters != "" {
		args = append(args, "--libvirt-log-filters="+said.Filters)
	}
	return args
}

// podGrace returns the termination grace period of a VMI's launcher, seconds.
func podGrace(vmi *v1.VirtualMachineInstance) int64 {
	return int64((life.Grace(vmi) + life.GraceSlack).Seconds())
}

func nodeSelector(vmi *v1.VirtualMachineInstance, facts Facts) map[string]string {
	cfg := facts.Config
	selector := map[string]string{}
	maps.Copy(selector, cfg.NodeSelectors)
	maps.Copy(selector, vmi.Spec.NodeSelector)
	selector[v1.NodeSchedulable] = "true"
	if sizing.Dedicated(&vmi.Spec.Domain) {
		selector[v1.CPUManager] = "true"
	}
	if cpu := vmi.Spec.Domain.CPU; cpu != nil && cpu.Realtime != nil {
		selector[v1.RealtimeLabel] = "true"
	}
	if passthrough.SEV(&vmi.Spec.Domain) {
		selector[v1.SEVLabel] = "true"
	}
	if passthrough.SEVES(&vmi.Spec.Domain) {
		selector[v1.SEVESLabel] = "true"
	}
	maps.Copy(selector, processorSelector(vmi, facts))
	selector[corev1.LabelArchStable] = architecture(vmi, facts)
	return selector
}

// PodLabels returns the labels of a VMI's pod, by which policies and Services select it.
func PodLabels(vmi *v1.VirtualMachineInstance) map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, vmi.Labels)
	// They describe the VMI object, not its pod.
	delete(labels, v1.NodeNameLabel)
	delete(labels, v1.MigrationTargetNodeNameLabel)
	labels[v1.AppLabel] = names.VirtLauncher
	labels[v1.CreatedByLabel] = string(vmi.UID)
	labels[v1.DeprecatedVirtualMachineNameLabel] = names.LabelValue(vmi.Name)
	labels[v1.VirtualMachineInstanceIDLabel] = names.LabelValue(vmi.Name)
	maps.Copy(labels, network.ProxyLabels(vmi))
	return labels
}

func podAnnotations(vmi *v1.VirtualMachineInstance, facts Facts) map[string]string {
	annotations := map[string]string{}
	maps.Copy(annotations, vmi.Annotations)
	maps.DeleteFunc(annotations, func(key, _ string) bool { return qos.Is(key) }) // may change while the pod is there
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	delete(annotations, v1.VirtualMachineGenerationAnnotation)
	delete(annotations, v1.ControllerAPILatestVersionObservedAnnotation)
	delete(annotations, v1.ControllerAPIStorageVersionObservedAnnotation)
	delete(annotations, network.AnnotationStatus)   // is Multus' to say
	delete(annotations, network.AnnotationPolicies) // changes while the pod is there
	delete(annotations, ipaddress.PodAnnotation)
	maps.Copy(annotations, network.Annotations(vmi, facts.Config.Allowed.Bindings, facts.Keepings))
	maps.Copy(annotations, network.ProxyAnnotations(vmi))
	maps.Copy(annotations, backupHooks(vmi, facts.Config.SkipBackupHooks))
	annotations[v1.DomainAnnotation] = vmi.Name
	annotations["kubectl.kubernetes.io/default-container"] = names.ContainerCompute
	return annotations
}

func copyAll[T any, P interface {
	*T
	DeepCopy() *T
}](in []T) []T {
	if in == nil {
		return nil
	}
	out := make([]T, len(in))
	for i := range in {
		out[i] = *P(&in[i]).DeepCopy()
	}
	return out
}

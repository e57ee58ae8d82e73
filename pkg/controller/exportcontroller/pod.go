package exportcontroller

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"kubevirt.io/api/export/v1beta1"

	"github.com/virtkit/virtkit/pkg/controller/helperpods"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/config"
	"github.com/virtkit/virtkit/pkg/vm/exports"
)

const (
	// grace is the pod's termination grace period, seconds: it cuts what it serves.
	grace = 5
	// serviceLabel leads the Service to the pod; KubeVirt's.
	serviceLabel = "kubevirt.io.virt-export-service"

	// hostFlag tells the server its host, for the manifests of clients outside of the cluster.
	hostFlag = "--host="

	volumeCert, volumeToken, volumeManifest = "certificates", "token", "manifest-data"
)

var resources = corev1.ResourceRequirements{
	Requests: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("64Mi"),
	},
	Limits: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("128Mi"),
	},
}

// Facts hold what an export's pod depends on besides the export and its volumes.
type Facts struct {
	Config config.Config
	// Image and ImagePullPolicy are virt-server's, in which the server is beside it: a static program, and nothing else
	// that who breaks into it could run. The configuration's pull policy wins.
	Image           string
	ImagePullPolicy corev1.PullPolicy
	// Identity, Token and Manifests are names of Secrets; Manifests is empty for an export without.
	Identity, Token, Manifests string
	// Made is when the source was made, which is the time of the files of an OVA: another export of the same has the
	// same bytes.
	Made metav1.Time
}

// Pod returns the pod that serves an export. It passes Pod Security `restricted`, has no service account's token, and
// mounts what it serves read-only. Its labels and annotations are the export's, but for the reserved ones.
func Pod(export *v1beta1.VirtualMachineExport, volumes []exports.Volume, facts Facts) *corev1.Pod {
	server := corev1.Container{
		Name:            names.ContainerCompute, // by which virt-handler knows whom it gives devices
		Image:           facts.Image,
		ImagePullPolicy: cmp.Or(facts.Config.ImagePullPolicy, facts.ImagePullPolicy),
		Command:         []string{"/usr/bin/" + names.VirtExport, "serve"},
		Args: []string{
			"--name=" + export.Name, hostFlag + exports.Host(export.Namespace, export.Name),
			"--created=" + facts.Made.UTC().Format(time.RFC3339),
			"--deadline=" + exports.Expiration(export).UTC().Format(time.RFC3339),
		},
		Resources: resources,
		Ports: []corev1.ContainerPort{
			{Name: "https", ContainerPort: names.ExportPort, Protocol: corev1.ProtocolTCP},
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: volumeCert, MountPath: names.ExportCertDir, ReadOnly: true},
			{Name: volumeToken, MountPath: names.ExportTokenDir, ReadOnly: true},
		},
		ReadinessProbe: &corev1.Probe{
			ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
				Scheme: corev1.URISchemeHTTPS, Path: names.ExportReady, Port: intstr.FromInt32(names.ExportPort),
			}},
			PeriodSeconds: 1, FailureThreshold: 10, TimeoutSeconds: 5,
		},
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
	if exports.SourceKind(&export.Spec.Source) == exports.KindSnapshot {
		// Its claims are this export's alone, so that a download goes on also when the pod was evicted.
		server.Args = append(server.Args, "--tag="+string(export.UID))
	}
	mounted := []corev1.Volume{secretVolume(volumeCert, facts.Identity), secretVolume(volumeToken, facts.Token)}
	if facts.Manifests != "" {
		server.Args = append(server.Args, "--manifests="+names.ExportManifestDir)
		server.VolumeMounts = append(server.VolumeMounts,
			corev1.VolumeMount{Name: volumeManifest, MountPath: names.ExportManifestDir, ReadOnly: true})
		mounted = append(mounted, secretVolume(volumeManifest, facts.Manifests))
	}
	for i, volume := range volumes {
		name := fmt.Sprintf("volume-%d", i)
		mounted = append(mounted, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: volume.Claim},
		}})
		if volume.Content == exports.Device {
			path := fmt.Sprintf("%s/%d", names.ExportDevicesDir, i)
			server.Args = append(server.Args, "--device="+volume.Name+"="+path)
			server.VolumeDevices = append(server.VolumeDevices, corev1.VolumeDevice{Name: name, DevicePath: path})
			continue
		}
		path := fmt.Sprintf("%s/%d", names.ExportDir, i)
		server.Args = append(server.Args, "--"+string(volume.Content)+"="+volume.Name+"="+path)
		server.VolumeMounts = append(server.VolumeMounts,
			corev1.VolumeMount{Name: name, MountPath: path, ReadOnly: true})
	}
	if len(server.VolumeDevices) > 0 {
		server.VolumeMounts = append(server.VolumeMounts,
			corev1.VolumeMount{Name: names.VolumeRun, MountPath: names.RunDir})
		mounted = append(mounted, corev1.Volume{Name: names.VolumeRun, VolumeSource: corev1.VolumeSource{
			EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(1<<20, resource.BinarySI)},
		}})
	}
	labels := unreserved(export.Labels)
	labels[names.LabelComponent], labels[serviceLabel] = names.VirtExport, labelOf(export)
	pod := helperpods.Restricted(metav1.ObjectMeta{
		Name: exports.Name(export.Name), Namespace: export.Namespace, Labels: labels,
		Annotations: unreserved(export.Annotations), OwnerReferences: []metav1.OwnerReference{owner(export)},
	}, server, mounted, facts.Config.NodeSelectors, grace)
	pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
	return pod
}

func labelOf(export *v1beta1.VirtualMachineExport) string {
	return names.LabelValue(export.Name)
}

func secretVolume(name, secret string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: secret},
	}}
}

// unreserved returns labels or annotations without those that Kubernetes, KubeVirt and virtkit reserve for themselves.
func unreserved(from map[string]string) map[string]string {
	out := map[string]string{}
	for key, value := range from {
		domain, _, _ := strings.Cut(key, "/")
		reserved := strings.HasPrefix(domain, "kubevirt.io")
		for _, theirs := range []string{"kubevirt.io", "virtkit.io", "kubernetes.io", "k8s.io"} {
			reserved = reserved || domain == theirs || strings.HasSuffix(domain, "."+theirs)
		}
		if !reserved {
			out[key] = value
		}
	}
	return out
}

// Service leads to the pod.
func Service(export *v1beta1.VirtualMachineExport) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: exports.Name(export.Name), Namespace: export.Namespace,
			Labels:          map[string]string{names.LabelComponent: names.VirtExport},
			OwnerReferences: []metav1.OwnerReference{owner(export)},
		},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{serviceLabel: labelOf(export), names.LabelComponent: names.VirtExport},
			Ports: []corev1.ServicePort{{
				Protocol: corev1.ProtocolTCP, Port: names.ExportServicePort,
				TargetPort: intstr.FromInt32(names.ExportPort),
			}},
		},
	}
}

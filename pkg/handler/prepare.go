package handler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/handler/capabilities"
	"github.com/virtkit/virtkit/pkg/handler/podfs"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/claims"
	"github.com/virtkit/virtkit/pkg/vm/filesystems"
	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/network/apply"
	"github.com/virtkit/virtkit/pkg/vm/passthrough"
	"github.com/virtkit/virtkit/pkg/vm/qos"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// start prepares the pod and starts the guest. This handler or the next one may repeat it: the launcher's Start changes
// nothing when the guest runs.
func (s *session) start(
	ctx context.Context, client launcherpb.LauncherClient, run *podfs.Run, process *podfs.Process,
) error {
	begun := time.Now()
	vmi := s.latest()
	if vmi.Status.NodeName != s.node.Name {
		vmi = volumemigration.AtTarget(vmi)
	}
	plan, err := step(ctx, s, "network of the pod", func() (*network.Plan, error) {
		return s.connect(ctx, vmi, process)
	})
	if err != nil {
		return err
	}
	s.publish(false, func(o *observation) { o.Plan = plan })
	if err := s.do(ctx, "devices of the pod", func() error { return s.giveDevices(vmi, process) }); err != nil {
		return err
	}
	if err := s.do(ctx, "devices of the node", func() error { return s.readyForDevices(vmi, process) }); err != nil {
		return err
	}
	if err := s.makeHostDisks(ctx, vmi, process); err != nil {
		return err
	}
	err = s.do(ctx, "images of the pod", func() error {
		return process.RefuseLinks(context.WithoutCancel(ctx), imageDirectories(vmi))
	})
	if errors.Is(err, errStuck) {
		return err
	} else if err != nil {
		s.log.Warn("links in claims are followed", "err", err) // the launcher looks at images before QEMU does
	}
	if err := s.giveIncoming(ctx, process, vmi); err != nil {
		return err
	}
	if err := s.do(ctx, "memory of the pod", func() error { s.readyForPostCopy(vmi, process); return nil }); err !=
		nil {
		return err
	}
	vmiJSON, err := json.Marshal(vmi)
	if err != nil {
		return fmt.Errorf("encode VirtualMachineInstance: %w", err)
	}
	planJSON, err := json.Marshal(plan)
	if err != nil {
		return fmt.Errorf("encode network plan: %w", err)
	}
	// Last, since the node may still be finding out what there is to give.
	warm, err := s.warm(ctx, run, process)
	if err != nil {
		// Without the cache the guest only starts later.
		s.log.Warn("capability cache not used", "err", err)
	}
	prepared := time.Now()
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	state, err := s.launch(starting, client, vmi, vmiJSON, planJSON)
	if err != nil {
		if grpcstatus.Code(err) == codes.Unavailable {
			return fmt.Errorf("%w: %w", errLost, err)
		}
		return err
	}
	s.log.Info("launcher started", "prepare", prepared.Sub(begun), "start", time.Since(prepared), "warm", warm)
	if state != nil {
		s.saw(state)
	}
	return nil
}

// launch has the launcher start the guest, or wait for it if it runs on another node and is to come here.
func (s *session) launch(
	ctx context.Context, client launcherpb.LauncherClient, vmi *v1.VirtualMachineInstance, vmiJSON, planJSON []byte,
) (*launcherpb.GuestState, error) {
	if vmi.Status.NodeName == s.node.Name {
		response, err := client.Start(ctx, &launcherpb.StartRequest{VmiJson: vmiJSON, NetworkPlanJson: planJSON})
		return response.GetState(), err
	}
	response, err := client.PrepareMigrationTarget(ctx,
		&launcherpb.PrepareMigrationTargetRequest{VmiJson: vmiJSON, NetworkPlanJson: planJSON})
	if err != nil {
		return nil, err
	}
	s.publish(true, func(o *observation) { o.Prepared, o.Failure = true, nil })
	return response.GetState(), nil
}

// connect makes the pod's network. The plan is kept outside the pod, since what it was made from may
// be gone once it is applied.
func (s *session) connect(
	ctx context.Context, vmi *v1.VirtualMachineInstance, process *podfs.Process,
) (*network.Plan, error) {
	ns, err := process.Netns()
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	plan, err := s.node.plans.Load(s.target.Pod)
	if err != nil {
		return nil, err
	}
	plan.Connected(s.target.Annotations)
	if plan == nil {
		var pod network.Pod
		if pod.Links, err = apply.Links(ns); err != nil {
			return nil, fmt.Errorf("read the pod's network: %w", err)
		}
		resolv, err := process.Resolv()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read the pod's resolv.conf: %w", err)
		}
		pod.Search, pod.Nameservers = resolv.Search, resolv.Nameservers
		pod.Incoming = vmi.Status.NodeName != s.node.Name
		pod.Attachments, pod.Multus = network.Attachments(s.podAnnotations())
		if s.node.Plugins != nil {
			pod.Plugins = s.node.Plugins()
		}
		if len(network.Spoofing(vmi.Annotations)) > 0 && s.node.MaySpoof != nil {
			if pod.MaySpoof, err = s.node.MaySpoof(ctx, vmi.Namespace); err != nil {
				return nil, fmt.Errorf("ask whether the VMI's guest may send as others: %w", err)
			}
		}
		made, err := network.NewPlan(vmi, pod)
		if err != nil {
			return nil, fmt.Errorf("plan the pod's network: %w", err)
		}
		if err := made.CheckConnected(s.target.Annotations); err != nil {
			return nil, err
		}
		if err := apply.FindRouters(ctx, ns, &made); err != nil {
			s.log.Warn("the guest gets no IPv6 default route", "err", err)
		}
		plan = &made
		if err := s.node.plans.Save(s.target.Pod, plan); err != nil {
			return nil, err
		}
	}
	if err := s.police(vmi, ns, plan); err != nil { // before there is a tap to send by
		return nil, err
	}
	if err := apply.Apply(ns, *plan); err != nil {
		return nil, fmt.Errorf("make the pod's network: %w", err)
	}
	if limits := qos.Of(vmi.Annotations).Interfaces; len(limits) > 0 {
		if err := apply.Limit(ns, *plan, limits); err != nil {
			return nil, fmt.Errorf("limit the pod's network: %w", err)
		}
	}
	if len(plan.Interfaces) > 0 {
		if err := process.EnsureTun(); err != nil {
			return nil, err
		}
	}
	return plan, nil
}

// spoofing returns how to ask a cluster whether the VMIs of a namespace may have guests that send as others.
func spoofing(clients kubernetes.Interface) func(ctx context.Context, namespace string) (bool, error) {
	return func(ctx context.Context, namespace string) (bool, error) {
		found, err := clients.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		if err != nil {
			return false, fmt.Errorf("get namespace %s: %w", namespace, err)
		}
		return network.MaySpoof(found.Labels), nil
	}
}

// giveDevices gives the launcher's user the devices that the kubelet put into the pod as root's.
func (s *session) giveDevices(vmi *v1.VirtualMachineInstance, process *podfs.Process) error {
	var devices []string
	if s.target.KVM {
		devices = append(devices, "/dev/kvm")
	}
	if passthrough.VSOCK(&vmi.Spec) {
		devices = append(devices, "/dev/"+names.DeviceVSOCK)
	}
	if passthrough.SEV(&vmi.Spec.Domain) {
		devices = append(devices, "/dev/"+names.DeviceSEV)
	}
	volumes := blockVolumes(vmi)
	if len(devices)+len(volumes) == 0 {
		return nil
	}
	granted, err := s.node.granted(process)
	if err != nil {
		return err
	}
	for _, device := range devices {
		if err := process.GiveDevice(device, granted); err != nil {
			return err
		}
	}
	for _, claim := range volumes {
		err := process.GiveDevice(path.Join(names.BlockDevicesDir, claim), granted)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("volume %q: %w", claim, err)
		}
	}
	return nil
}

// blockVolumes returns the volumes that may be block devices in the pod. Whether one is, only the pod knows for sure; a
// claim of mode Filesystem has no device.
func blockVolumes(vmi *v1.VirtualMachineInstance) []string {
	mounted := map[string]bool{}
	for _, st := range vmi.Status.VolumeStatus {
		info := st.PersistentVolumeClaimInfo
		mounted[st.Name] = info != nil && info.VolumeMode != nil &&
			*info.VolumeMode == corev1.PersistentVolumeFilesystem
	}
	var volumes []string
	for _, v := range vmi.Spec.Volumes {
		if claims.Of(&v) != nil && !mounted[v.Name] && filesystems.Of(&vmi.Spec, v.Name) == nil {
			volumes = append(volumes, v.Name)
		}
	}
	return volumes
}

// imageDirectories returns the pod's directories with images that others may write, too; not those that are shared with
// the guest as file systems.
func imageDirectories(vmi *v1.VirtualMachineInstance) []string {
	var out []string
	for i := range vmi.Spec.Volumes {
		v := &vmi.Spec.Volumes[i]
		if (v.HostDisk != nil || v.Ephemeral != nil || claims.Of(v) != nil) &&
			filesystems.Of(&vmi.Spec, v.Name) == nil {
			out = append(out, path.Join(names.ClaimsDir, v.Name))
		}
	}
	return out
}

// warm gives the launcher the node's cache of QEMU's capabilities, and reports whether there is one for it.
func (s *session) warm(ctx context.Context, run *podfs.Run, process *podfs.Process) (bool, error) {
	variant := capabilities.Variant{KVM: s.target.KVM, SEV: passthrough.SEV(&s.latest().Spec.Domain)}
	const what = "files of QEMU"
	key, err := step(ctx, s, what,
		func() (capabilities.Key, error) { return capabilities.NewKey(variant, process.Stat) })
	if err != nil {
		return false, err
	}
	s.node.Prober.Wait(ctx, key)
	return step(ctx, s, what, func() (bool, error) { return s.node.Capabilities.Install(key, run.Root) })
}

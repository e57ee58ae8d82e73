package why

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/life"
)

// launcher returns the pod that the guest is in, else the instance's youngest launcher pod; nil when there is none.
func (e *explanation) launcher() *corev1.Pod {
	if e.VMI == nil {
		return nil
	}
	var youngest *corev1.Pod
	for i := range e.Pods {
		pod := &e.Pods[i]
		switch {
		case life.GuestIn(e.VMI, pod) && !life.PodEnded(pod):
			return pod
		case youngest == nil && life.Recorded(e.VMI, pod):
			youngest = pod
		}
	}
	return youngest
}

func (e *explanation) podName() string {
	if pod := e.launcher(); pod != nil {
		return pod.Name
	}
	return "virt-launcher-" + e.Name
}

func (e *explanation) podObject() string { return "pod/" + e.podName() }

func (e *explanation) launcherRuns() bool {
	pod := e.launcher()
	return pod != nil && pod.Status.Phase == corev1.PodRunning
}

// pod looks at the launcher's pod: the scheduler's verdict, images, mounts, its end.
func (e *explanation) pod() {
	if !life.Alive(e.VMI) {
		return
	}
	pod := e.launcher()
	if pod == nil {
		switch {
		case !e.readable("pods"):
			e.link(LayerPod, e.podObject(), Unknown, "you may not read pods", time.Time{})
		case e.has(rankMissing):
			e.link(LayerPod, e.podObject(), Broken, "there is none", time.Time{})
		default:
			e.link(LayerPod, e.podObject(), Waiting, "there is none yet", time.Time{})
		}
		return
	}
	found := len(e.causes)
	e.readiness(pod)
	switch {
	case life.PodEnded(pod):
		e.podOver(pod)
	case pod.DeletionTimestamp != nil && e.VMI.DeletionTimestamp == nil:
		e.podTerminating()
	case pod.Spec.NodeName == "":
		e.unscheduled(pod)
	case pod.Status.Phase == corev1.PodPending:
		e.starting(pod)
	case pod.Status.Phase == corev1.PodUnknown:
		e.add(rankSymptom, LayerPod, e.podObject(), Broken, "PodUnknown", "the kubelet of node "+pod.Spec.NodeName+
			" does not answer", "kubectl describe node "+pod.Spec.NodeName)
	}
	state, message := OK, strings.ToLower(string(pod.Status.Phase))
	if pod.Status.Phase == corev1.PodPending {
		state = Waiting
	}
	if pod.Spec.NodeName != "" {
		message += " on node " + pod.Spec.NodeName
	}
	if ready, why := PodReady(pod); !ready && why != "" && e.notReady() != nil {
		state, message = Broken, message+", not ready: "+why
	}
	for _, c := range e.causes[found:] {
		if c.State == Waiting && state == OK {
			state, message = Waiting, c.Message
		}
		if c.State == Broken {
			state, message = Broken, c.Message
			break
		}
	}
	e.link(LayerPod, e.podObject(), state, message, pod.CreationTimestamp.Time)
}

// podTerminating adds that the pod is being deleted. A VM that always runs has another one afterwards by itself.
func (e *explanation) podTerminating() {
	state, said := Broken, "the pod is being deleted, and the guest is shut down with it"
	if e.VM != nil {
		if strategy, err := e.VM.RunStrategy(); err == nil && strategy == v1.RunStrategyAlways {
			state, said = Waiting, said+"; then its VM starts it anew"
		}
	}
	e.add(rankSymptom, LayerPod, e.podObject(), state, "PodTerminating", said, "virtctl events "+e.Name+e.flag())
}

func (e *explanation) podOver(pod *corev1.Pod) {
	reason := pod.Status.Reason
	message := pod.Status.Message
	for _, c := range pod.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil {
			if reason == "" {
				reason = t.Reason
			}
			if message == "" {
				message = strings.TrimSpace(fmt.Sprintf("container %s ended with code %d. %s", c.Name,
					t.ExitCode, t.Message))
			}
		}
	}
	switch reason {
	case "OOMKilled":
		e.add(rankGuest, LayerPod, e.podObject(), Broken, reason, "QEMU used more memory than its pod may",
			"raise resources.limits.memory, or leave it out: virtkit adds what QEMU needs")
	case "Evicted":
		e.add(rankGuest, LayerPod, e.podObject(), Broken, reason, "the kubelet evicted the pod: "+message,
			"kubectl describe node "+pod.Spec.NodeName)
	case "NodeShutdown", "Terminated", "NodeLost":
		e.add(rankGuest, LayerPod, e.podObject(), Broken, reason, "its node was shut down: "+message,
			"kubectl get nodes")
	case "Completed":
		e.add(rankProgress, LayerPod, e.podObject(), Waiting, "PodCompleted",
			"the guest has ended, and its instance is about to say so")
	default:
		e.add(rankGuest, LayerPod, e.podObject(), Broken, "PodFailed", strings.TrimSpace("the pod failed: "+reason+" "+
			message), "virtctl logs "+e.Name+e.flag()+" --source launcher")
	}
}

// noAddress finds in an event that a pool of addresses is used up: the words of the IPAM plugins host-local,
// whereabouts, Calico's, Cilium's and AWS'.
var noAddress = regexp.MustCompile(`(?i)no IP addresses available in range|could not allocate IP in range|` +
	`assigned 0 out of \d+ requested|no more (free )?IPs? available|range is full|failed to assign an IP address`)

// quoted finds the image in the kubelet's words.
var quoted = regexp.MustCompile(`image "?\\?"?([^"\\ ]+)`)

// starting explains why a pod that has a node does not run.
func (e *explanation) starting(pod *corev1.Pod) {
	if pod.Annotations["scheduler.alpha.kubernetes.io/node-missing"] != "" {
		return
	}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		w := c.State.Waiting
		if w == nil {
			continue
		}
		if life.ImageTrouble(w.Reason) != "" {
			e.image(pod, w)
			return
		}
		switch w.Reason {
		case "CreateContainerConfigError":
			e.add(rankMissing, LayerPod, e.podObject(), Broken, "ContainerConfig", "the container cannot be set up: "+
				w.Message, "create what it names, or change the VM's volumes")
			return
		case "CreateContainerError", "RunContainerError":
			if strings.Contains(w.Message, "image volume") || strings.Contains(w.Message, "failed to mount image") {
				e.add(rankImage, LayerPod, e.podObject(), Broken, "ImageVolumes",
					"the node cannot mount an image as a volume: "+w.Message,
					"Kubernetes 1.35 or later with containerd 2.1 or later; see `virtctl doctor`")
				return
			}
			e.add(rankSandbox, LayerPod, e.podObject(), Broken, w.Reason, "the container cannot be started: "+w.Message,
				"kubectl describe "+e.podObject()+e.flag())
			return
		}
	}
	if event := e.lastEvent("Pod", pod.Name, corev1.EventTypeWarning); event != nil &&
		strings.Contains(event.Message, "network-attachment-definition") {
		// Multus' own word, or what the kubelet passes on of it.
		e.add(rankMissing, LayerPod, e.podObject(), Broken, "NetworkMissing", "a network of the VM is not there: "+
			firstLine(event.Message),
			"create the NetworkAttachmentDefinition that the message names, or change spec.template.spec.networks of "+
				"the VM: multus.networkName is NAME or NAMESPACE/NAME",
			"kubectl get network-attachment-definitions -A").Evidence = quote(event)
		return
	}
	if event := e.lastEvent("Pod", pod.Name, corev1.EventTypeWarning); event != nil &&
		event.Reason == "FailedCreatePodSandBox" && noAddress.MatchString(event.Message) {
		e.add(rankSandbox, LayerPod, e.podObject(), Broken, "NoAddress", "a network of the VM has no address left: "+
			firstLine(event.Message),
			"stop a VM or delete a pod that has one; then the VM starts by itself",
			"give the network more: the ranges in ipam of its NetworkAttachmentDefinition, or the pod network's pool",
			"kubectl describe "+e.podObject()+e.flag()).Evidence = quote(event)
		return
	}
	for _, kind := range []struct {
		event, reason, message string
		rank                   rank
		fixes                  []string
	}{
		{
			"FailedCreatePodSandBox", "Sandbox", "the node cannot make the pod's network or sandbox", rankSandbox,
			[]string{"the cluster's network plugin (CNI) on node " + pod.Spec.NodeName},
		},
		{
			"FailedAttachVolume", "AttachVolume", "a volume cannot be attached to the node", rankVolume,
			[]string{"end what uses the volume on another node, or use an access mode ReadWriteMany"},
		},
		{
			"FailedMount", "MountVolume", "a volume cannot be mounted", rankVolume,
			[]string{"create the Secret, ConfigMap or claim that the message names"},
		},
		{"FailedMapVolume", "MapVolume", "a block volume cannot be mapped", rankVolume, nil},
		{"OutOfmemory", "OutOfMemory", "the node had no memory left when the pod came", rankSchedule, nil},
	} {
		event := e.lastEvent("Pod", pod.Name, corev1.EventTypeWarning)
		if event == nil || event.Reason != kind.event {
			continue
		}
		e.add(kind.rank, LayerPod, e.podObject(), Broken, kind.reason, kind.message+": "+firstLine(event.Message),
			append(kind.fixes, "kubectl describe "+e.podObject()+e.flag())...).Evidence = quote(event)
		return
	}
	waited := e.Now.Sub(pod.CreationTimestamp.Time)
	if waited > time.Minute && !e.has(rankNode) {
		e.add(rankSymptom, LayerPod, e.podObject(), Broken, "KubeletSlow",
			fmt.Sprintf("the kubelet of node %s has not started the pod for %s", pod.Spec.NodeName,
				age(e.Now, pod.CreationTimestamp.Time)),
			"kubectl describe "+e.podObject()+e.flag(), "kubectl describe node "+pod.Spec.NodeName)
		return
	}
	e.add(rankProgress, LayerPod, e.podObject(), Waiting, "PodStarting", "the kubelet is starting the pod")
}

// image explains a pull that fails: which image, whose, and why.
func (e *explanation) image(pod *corev1.Pod, w *corev1.ContainerStateWaiting) {
	message := w.Message
	// The back-off says nothing; the failure before it is in an event.
	if w.Reason == "ImagePullBackOff" {
		for i := len(e.Events) - 1; i >= 0; i-- {
			if event := &e.Events[i]; event.InvolvedObject.Name == pod.Name && event.Reason == "Failed" &&
				strings.Contains(event.Message, "pull") && !strings.Contains(event.Message, "Error: ") {
				message = event.Message
				break
			}
		}
	}
	launcher := ""
	if len(pod.Spec.Containers) > 0 {
		launcher = pod.Spec.Containers[0].Image
	}
	image := launcher
	if m := quoted.FindStringSubmatch(w.Message); m != nil {
		image = strings.TrimSuffix(m[1], ":")
	}
	whose, field := "the launcher's image", "virtctl install --image-registry … --image-tag …"
	for _, v := range pod.Spec.Volumes {
		if v.Image != nil && (v.Image.Reference == image || strings.Contains(w.Message, v.Image.Reference)) {
			image = v.Image.Reference
			whose, field = fmt.Sprintf("the container disk of volume %q", v.Name),
				fmt.Sprintf("containerDisk.image of volume %q in the VM", v.Name)
		}
	}
	reason, why, fixes := "ImagePull", firstLine(message), []string{field}
	low := strings.ToLower(message)
	switch {
	case w.Reason == "ErrImageNeverPull":
		reason, why = "ImageNotPresent", "it is not on node "+pod.Spec.NodeName+" and the policy is Never"
		fixes = append(fixes, "set imagePullPolicy to IfNotPresent, or load the image: virt-local load-image")
	case w.Reason == "InvalidImageName" || strings.Contains(low, "invalid reference"):
		reason, why = "ImageName", "its name is not valid"
	case strings.Contains(low, "not found") || strings.Contains(low, "manifest unknown"):
		reason, why = "ImageNotFound", "the registry does not have it"
	case strings.Contains(low, "unauthorized") || strings.Contains(low, "denied") ||
		strings.Contains(low, "forbidden") || strings.Contains(low, "no basic auth"):
		reason, why = "ImageDenied", "the registry denies it: the name is wrong or needs credentials"
		fixes = append(fixes, "containerDisk.imagePullSecret of the volume")
	case strings.Contains(low, "no such host") || strings.Contains(low, "dial tcp") ||
		strings.Contains(low, "i/o timeout") || strings.Contains(low, "connection refused"):
		reason, why = "RegistryUnreachable", "node "+pod.Spec.NodeName+" cannot reach the registry"
	case strings.Contains(low, "x509") || strings.Contains(low, "tls"):
		reason, why = "RegistryTLS", "node "+pod.Spec.NodeName+" does not trust the registry's certificate"
	case strings.Contains(low, "no space left"):
		reason, why = "NodeDiskFull", "node "+pod.Spec.NodeName+" has no room for it"
	}
	e.add(rankImage, LayerPod, e.podObject(), Broken, reason,
		fmt.Sprintf("%s, %s, cannot be pulled: %s", whose, image, why), fixes...).Evidence = w.Reason + ": " + message
}

// firstLine returns the first line of a message, with its middle left out where it is long: components wrap an error in
// what they were about, so that the cause is at the end.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	const first, last = 100, 200
	if len(line) > first+last {
		line = strings.ToValidUTF8(line[:first], "") + " … " + strings.ToValidUTF8(line[len(line)-last:], "")
	}
	return line
}

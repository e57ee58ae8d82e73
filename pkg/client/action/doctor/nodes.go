package doctor

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/report/host"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/fencing"
	"github.com/virtkit/virtkit/pkg/vm/life"
)

// nodes looks at each node that could run VMs.
func (e *examination) nodes() {
	if err := e.Nodes.Err; err != nil {
		e.skip(Node, "nodes", "the nodes (kubelet, virt-handler, KVM, memory and clock of each) are", err)
		return
	}
	usable := 0
	for i := range e.Nodes.Value {
		node := &e.Nodes.Value[i]
		first := len(e.checks)
		e.kubelet(node)
		e.handler(node)
		e.virtualization(node)
		e.memory(node)
		e.clock(node)
		for j := range e.checks[first:] {
			e.checks[first+j].Object = node.Name
		}
		if life.TakesNewVMs(node) {
			usable++
		}
	}
	switch usable {
	case 0:
		e.add(Node, "capacity", Failed, "no node takes VMs",
			"kubectl -n "+names.Namespace+" get pods -l kubevirt.io="+names.VirtHandler+" -o wide")
	case 1:
		e.add(Node, "capacity", Warning, "only one node takes VMs: nothing can migrate, and a drain stops its guests",
			"add a node")
	default:
		e.add(Node, "capacity", OK, fmt.Sprintf("%d nodes take VMs", usable))
	}
}

var containerd = regexp.MustCompile(`^containerd://(\d+)\.(\d+)`)

func (e *examination) kubelet(node *corev1.Node) {
	describe := "kubectl describe node " + node.Name
	info := node.Status.NodeInfo
	if c := conditions.With(node.Status.Conditions, corev1.NodeNetworkUnavailable, corev1.ConditionTrue); c != nil {
		e.add(Node, "network", Failed, "the node's pod network is not set up: "+c.Message,
			"the cluster's network plugin (CNI)")
	}
	for _, pressure := range life.NodePressures(node) {
		e.add(Node, "pressure", Warning, fmt.Sprintf("%s: the kubelet may evict VMs", pressure), describe)
	}
	if c := life.NodeNotReady(node); c != nil {
		message := "the node is not ready: " + c.Message
		if strings.Contains(c.Message, "cni") || strings.Contains(c.Message, "NetworkPluginNotReady") {
			message = "the node has no pod network (CNI): " + c.Message
		}
		fixes := []string{describe}
		if fencing.Silent(node) != nil && !fencing.Fenced(node) {
			fixes = append(fixes,
				"when the machine is off for certain, so that its VMs start elsewhere: "+
					fencing.TaintCommand(node.Name))
		}
		e.add(Node, "ready", Failed, message, fixes...)
		return
	}
	if m := containerd.FindStringSubmatch(info.ContainerRuntimeVersion); m != nil {
		major, _ := strconv.Atoi(m[1]) // digits, as matched
		minor, _ := strconv.Atoi(m[2])
		if major < 2 || major == 2 && minor < 1 {
			e.add(Node, "runtime", Failed, info.ContainerRuntimeVersion+
				" cannot mount images as volumes, which container disks are", "upgrade containerd to 2.1 or later")
			return
		}
	}
	e.add(Node, "ready", OK, fmt.Sprintf("kubelet %s, %s, kernel %s, %s", info.KubeletVersion,
		info.ContainerRuntimeVersion, info.KernelVersion, info.Architecture))
	if fencing.OutOfService(node) {
		e.add(Node, "out-of-service", Warning, "the node answers, but is marked as out of service: it takes no VMs",
			fencing.UntaintCommand(node.Name))
	}
	if node.Spec.Unschedulable {
		e.add(Node, "cordoned", Warning, "the node is cordoned: no VM starts on it", "kubectl uncordon "+node.Name)
	}
}

func (e *examination) handler(node *corev1.Node) {
	if e.Pods.Err != nil {
		e.skip(Node, names.VirtHandler, "virt-handler is", e.Pods.Err)
		return
	}
	pods := life.Component(e.Pods.Value, names.VirtHandler)
	at := slices.IndexFunc(pods, func(pod *corev1.Pod) bool { return pod.Spec.NodeName == node.Name })
	logs := "kubectl -n " + names.Namespace + " logs -l kubevirt.io=" + names.VirtHandler +
		" --field-selector spec.nodeName=" + node.Name
	switch {
	case at < 0 && len(node.Spec.Taints) > 0:
		e.add(Node, names.VirtHandler, OK, "no virt-handler: the node has taints, and takes no VMs")
		return
	case at < 0:
		e.add(Node, names.VirtHandler, Failed, "no virt-handler runs on the node",
			"kubectl -n "+names.Namespace+" describe daemonset "+names.VirtHandler)
		return
	case !life.PodReady(pods[at]):
		e.add(Node, names.VirtHandler, Failed, "virt-handler is not ready: "+life.PodTrouble(pods[at]), logs)
		return
	}
	beat, err := host.Heartbeat(node)
	switch {
	case err != nil:
		e.add(Node, names.VirtHandler, Warning, "virt-handler has not left a heartbeat", logs)
	case host.Late(beat, e.Now.Add(-e.Behind)):
		e.add(Node, names.VirtHandler, Failed,
			fmt.Sprintf("virt-handler left its last heartbeat %s ago", spell(e.Now.Add(-e.Behind).Sub(beat))), logs)
	default:
		e.add(Node, names.VirtHandler, OK, "virt-handler is ready")
	}
}

// virtualization looks at KVM and nested KVM, from what virt-handler found.
func (e *examination) virtualization(node *corev1.Node) {
	text := node.Annotations[names.AnnotationHost]
	if text == "" {
		return // virt-handler, which leaves it, has been looked at
	}
	machine, err := host.Parse(text)
	if err != nil {
		e.skip(Node, "kvm", "hardware virtualization is", err)
		return
	}
	emulation := false
	if kv := e.KubeVirt.Value; kv != nil && kv.Spec.Configuration.DeveloperConfiguration != nil {
		emulation = kv.Spec.Configuration.DeveloperConfiguration.UseEmulation
	}
	offered := node.Status.Allocatable[names.ResourceKVM]
	switch {
	case !machine.KVM:
		fixes := []string{"load kvm_intel or kvm_amd, and switch virtualization on in the firmware"}
		if machine.Virtualized {
			fixes = []string{"the machine is itself virtual: let its hypervisor pass virtualization on (nested)"}
		}
		e.add(Node, "kvm", Warning, "no hardware virtualization, so that guests are emulated and slow: "+
			machine.NoKVM, fixes...)
	case emulation:
		e.add(Node, "kvm", Warning, "the node has KVM, but useEmulation is set and guests do not use it",
			"kubectl -n "+names.Namespace+" patch kubevirt "+names.KubeVirt+
				` --type=merge -p '{"spec":{"configuration":{"developerConfiguration":{"useEmulation":false}}}}'`)
	case offered.IsZero():
		e.add(Node, "kvm", Warning, "the node has KVM, but the kubelet does not offer "+names.ResourceKVM,
			"kubectl -n "+names.Namespace+" delete pod -l kubevirt.io="+names.VirtHandler+
				" --field-selector spec.nodeName="+node.Name)
	case machine.Nested:
		e.add(Node, "kvm", OK, fmt.Sprintf("KVM (%s), nested too", machine.Module))
	default:
		e.add(Node, "kvm", OK, fmt.Sprintf("KVM (%s); guests cannot run guests (nested is off)", machine.Module))
	}
}

func (e *examination) memory(node *corev1.Node) {
	var pages []string
	for name, quantity := range node.Status.Allocatable {
		if size, ok := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix); ok && !quantity.IsZero() {
			pages = append(pages, quantity.String()+" of "+size+" pages")
		}
	}
	slices.Sort(pages)
	text := "no huge pages"
	if len(pages) > 0 {
		text = "huge pages: " + strings.Join(pages, ", ")
	}
	memory, cpu := node.Status.Allocatable[corev1.ResourceMemory], node.Status.Allocatable[corev1.ResourceCPU]
	e.add(Node, "resources", OK, fmt.Sprintf("%s CPUs, %d MiB of memory, %s", cpu.String(), memory.Value()>>20, text))
}

// clock compares the node's clock with the API server's: a heartbeat says what time it was on the node when the API
// server took it, and managedFields say when that was.
func (e *examination) clock(node *corev1.Node) {
	beat, err := host.Heartbeat(node)
	if err != nil {
		return // virt-handler has been looked at
	}
	for _, field := range node.ManagedFields {
		if field.Time == nil || field.FieldsV1 == nil ||
			!strings.Contains(field.FieldsV1.GetRawString(), v1.VirtHandlerHeartbeat) {
			continue
		}
		if off := beat.Sub(field.Time.Time); off.Abs() > skew {
			e.add(Node, "clock", Warning, fmt.Sprintf("the node's clock is %s the API server's", ahead(off)),
				"set the node's clock by NTP")
		} else {
			e.add(Node, "clock", OK, "the node's clock agrees with the API server's")
		}
	}
}

package why

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/report/host"
	"github.com/virtkit/virtkit/pkg/vm/conditions"
	"github.com/virtkit/virtkit/pkg/vm/fencing"
	"github.com/virtkit/virtkit/pkg/vm/life"
)

// verdicts translates what the scheduler says of nodes.
var verdicts = []struct {
	says          *regexp.Regexp
	reason, means string
	fixes         []string
}{
	{
		regexp.MustCompile(`Insufficient memory`), "NoMemory", "too little memory left",
		[]string{"make spec.template.spec.domain.memory.guest smaller, stop another VM, or add a node"},
	},
	{
		regexp.MustCompile(`Insufficient cpu`), "NoCPU", "too little CPU left",
		[]string{"ask for less CPU: domain.cpu, resources.requests.cpu, or raise " +
			"spec.configuration.developerConfiguration.cpuAllocationRatio of the KubeVirt resource"},
	},
	{
		regexp.MustCompile(`Insufficient devices\.kubevirt\.io/kvm`), "NoKVM", "no hardware virtualization (KVM)",
		[]string{"use a node with KVM, or set useEmulation; see `virtctl doctor`"},
	},
	{
		regexp.MustCompile(`Insufficient hugepages`), "NoHugepages", "too few huge pages",
		[]string{"reserve huge pages on a node, or drop domain.memory.hugepages"},
	},
	{
		regexp.MustCompile(`Insufficient ([a-z0-9.-]+/[a-zA-Z0-9_.-]+)`), "NoDevice", "a device is missing",
		[]string{"kubectl describe nodes | grep -A8 Allocatable"},
	},
	{regexp.MustCompile(`Too many pods`), "TooManyPods", "full of pods", []string{"add a node"}},
	{
		regexp.MustCompile(`didn't match Pod's node affinity/selector|didn't match PersistentVolume's node affinity`),
		"NodeAffinity", "not where the VM or its volume may be",
		[]string{
			"spec.template.spec.nodeSelector and affinity of the VM",
			"kubectl get nodes -L kubevirt.io/schedulable",
		},
	},
	{
		regexp.MustCompile(`had volume node affinity conflict`), "VolumeAffinity", "the VM's volume cannot be reached",
		[]string{"let the VM run where its volume is, or use storage that all nodes reach"},
	},
	{
		regexp.MustCompile(`had untolerated taint|had taint`), "Taint", "a taint that the VM does not tolerate",
		[]string{"kubectl describe nodes | grep Taints", "spec.template.spec.tolerations of the VM"},
	},
	{regexp.MustCompile(`were unschedulable`), "Cordoned", "cordoned", []string{"kubectl uncordon NODE"}},
	{
		regexp.MustCompile(`anti-affinity|affinity rules|topology spread`), "PodAffinity",
		"a rule about its neighbours",
		[]string{"spec.template.spec.affinity and topologySpreadConstraints of the VM"},
	},
	{regexp.MustCompile(`unbound immediate PersistentVolumeClaims`), "UnboundClaim", "a claim has no volume", nil},
	{regexp.MustCompile(`persistentvolumeclaim "[^"]*" not found`), "ClaimMissing", "a claim does not exist", nil},
	{
		regexp.MustCompile(`persistentvolumeclaim "[^"]*" is being deleted`), reasonTerminating,
		"a claim is being deleted", nil,
	},
	{regexp.MustCompile(`max volume count`), "VolumeLimit", "no more volumes can be attached", nil},
	{
		regexp.MustCompile(`no available persistent volumes|didn't find available persistent volumes`), "NoVolume",
		"no volume for the claim", nil,
	},
}

// unscheduled explains why a pod has no node.
func (e *explanation) unscheduled(pod *corev1.Pod) {
	c := conditions.Find(pod.Status.Conditions, corev1.PodScheduled)
	object := e.podObject()
	switch {
	case c != nil && c.Reason == "SchedulingGated":
		e.add(rankSchedule, LayerPod, object, Broken, "SchedulingGated", "another program holds the pod back with a "+
			"scheduling gate", "kubectl get "+object+e.flag()+" -o jsonpath={.spec.schedulingGates}")
		return
	case c == nil || c.Status != corev1.ConditionFalse:
		if waited := e.Now.Sub(pod.CreationTimestamp.Time); waited > 30*time.Second {
			name := pod.Spec.SchedulerName
			e.add(rankSchedule, LayerPod, object, Broken, "SchedulerSilent",
				fmt.Sprintf("scheduler %q has not looked at the pod for %s", name,
					age(e.Now, pod.CreationTimestamp.Time)),
				"see that it runs, or leave out spec.template.spec.schedulerName")
			return
		}
		e.add(rankProgress, LayerPod, object, Waiting, "Scheduling", "the scheduler is choosing a node")
		return
	}
	reason, text, fixes := e.schedulerSays(pod, c.Message)
	r := rankSchedule
	switch reason {
	case "UnboundClaim", "ClaimMissing", "NoVolume", reasonTerminating:
		if e.hasLayer(LayerVolumes) {
			r = rankSymptom // the claim itself is the cause
		}
	}
	e.add(r, LayerPod, object, Broken, reason, text, fixes...).Evidence = "condition PodScheduled: " + c.Message
}

// schedulerSays translates what the scheduler says of a pod that no node can take.
func (e *explanation) schedulerSays(pod *corev1.Pod, message string) (reason, text string, fixes []string) {
	verdict, _, _ := strings.Cut(message, " preemption:")
	var parts []string
	reason = "Unschedulable"
	for _, v := range verdicts {
		where := v.says.FindStringIndex(verdict)
		if where == nil {
			continue
		}
		if v.reason == "NoDevice" && strings.Contains(verdict, names.ResourceKVM) {
			continue
		}
		if reason == "Unschedulable" {
			reason = v.reason
		} else {
			reason = "Unschedulable" // several
		}
		parts = append(parts, count(verdict, where[0])+v.means)
		fixes = append(fixes, v.fixes...)
	}
	text = "no node can take it"
	if len(parts) > 0 {
		text += ": " + strings.Join(parts, ", ")
	} else {
		text += ": " + firstLine(message)
	}
	if missing := e.missingLabels(pod); len(missing) > 0 && strings.Contains(verdict, "node affinity/selector") {
		text += "; no node has " + strings.Join(missing, ", ")
		fixes = append(labelFixes(missing), fixes...)
	}
	if len(parts) > 1 {
		reason = "Unschedulable"
	}
	return reason, text, append(fixes, "kubectl describe pod/"+pod.Name+e.flag())
}

func (e *explanation) hasLayer(layer Layer) bool {
	for _, c := range e.causes {
		if c.Layer == layer && c.State != OK {
			return true
		}
	}
	return false
}

var number = regexp.MustCompile(`(\d+) (?:node\(s\) )?$`)

// count returns how many nodes a part of the verdict is about: "2 nodes: ", from the words before it.
func count(verdict string, at int) string {
	m := number.FindStringSubmatch(verdict[:at])
	switch {
	case m == nil:
		return ""
	case m[1] == "1":
		return "1 node: "
	}
	return m[1] + " nodes: "
}

// nodes looks at the node that the guest is on, and whether any can take one.
func (e *explanation) nodes() {
	if !life.Alive(e.VMI) {
		return
	}
	name := e.VMI.Status.NodeName
	if name == "" {
		if pod := e.launcher(); pod != nil {
			name = pod.Spec.NodeName
		}
	}
	if name == "" {
		e.noneSchedulable()
		return
	}
	object := "node/" + name
	if !e.readable("nodes") {
		e.link(LayerNode, object, Unknown, "you may not read nodes", time.Time{})
		return
	}
	node := e.node(name)
	if node == nil {
		e.link(LayerNode, object, Broken, "it does not exist any more", time.Time{})
		e.add(rankNode, LayerNode, object, Broken, "NodeGone", "node "+name+
			" does not exist any more; the VM starts elsewhere once its pod is gone",
			"kubectl delete "+e.podObject()+e.flag()+" --force --grace-period 0")
		return
	}
	found := len(e.causes)
	e.nodeHealth(node)
	e.handler(node)
	state, message := OK, "ready"
	for _, c := range e.causes[found:] {
		if c.State == Broken || c.State == Waiting {
			state, message = c.State, c.Message
			break
		}
	}
	e.link(LayerNode, object, state, message, time.Time{})
}

func (e *explanation) node(name string) *corev1.Node {
	for i := range e.Nodes {
		if e.Nodes[i].Name == name {
			return &e.Nodes[i]
		}
	}
	return nil
}

func (e *explanation) nodeHealth(node *corev1.Node) {
	object := "node/" + node.Name
	describe := "kubectl describe node " + node.Name
	switch c := life.NodeNotReady(node); {
	case c == nil:
	case fencing.Fenced(node):
		e.add(rankNode, LayerNode, object, Waiting, "NodeFenced", "node "+node.Name+
			" is out of service: the VM starts elsewhere once its pod is removed",
			"virtctl events "+e.Name+e.flag(),
			"when the machine is back: "+fencing.UntaintCommand(node.Name))
	case fencing.Silent(node) != nil:
		e.add(rankNode, LayerNode, object, Broken, "NodeLost", "node "+node.Name+" has not answered for "+
			age(e.Now, c.LastTransitionTime.Time), describe,
			"when the machine is off for certain: "+fencing.TaintCommand(node.Name))
	default:
		e.add(rankNode, LayerNode, object, Broken, "NodeNotReady", "node "+node.Name+" is not ready: "+
			c.Message, describe)
	}
	for _, pressure := range life.NodePressures(node) {
		e.add(rankRemark, LayerNode, object, OK, string(pressure),
			fmt.Sprintf("node %s is under pressure (%s): it may evict the VM", node.Name, pressure), describe)
	}
	if node.Spec.Unschedulable {
		e.add(rankRemark, LayerNode, object, OK, "Cordoned", "node "+node.Name+
			" is cordoned: the guest stays, but would not start there again", "kubectl uncordon "+node.Name)
	}
}

// handler looks at the node's virt-handler.
func (e *explanation) handler(node *corev1.Node) {
	if !e.readable("pods of virtkit") {
		return
	}
	object := "daemonset/" + names.VirtHandler
	logs := "kubectl -n " + names.Namespace + " logs -l kubevirt.io=" + names.VirtHandler +
		" --field-selector spec.nodeName=" + node.Name
	for _, pod := range life.Component(e.Stack, names.VirtHandler) {
		if pod.Spec.NodeName != node.Name {
			continue
		}
		if !life.PodReady(pod) {
			e.add(rankNode, LayerNode, object, Broken, "HandlerNotReady",
				"virt-handler of node "+node.Name+" is not ready: "+life.PodTrouble(pod)+
					"; without it no guest of the node is started or reached", logs)
		} else if beat, err := host.Heartbeat(node); err == nil && host.Late(beat, e.Now) {
			e.add(rankNode, LayerNode, object, Broken, "HandlerSilent",
				fmt.Sprintf("virt-handler of node %s left its last heartbeat %s ago", node.Name, age(e.Now, beat)),
				logs)
		}
		return
	}
	e.add(rankNode, LayerNode, object, Broken, "HandlerMissing", "no virt-handler runs on node "+node.Name+
		": no guest of the node is started or reached",
		"kubectl -n "+names.Namespace+" describe daemonset "+names.VirtHandler, "virtctl doctor")
}

// noneSchedulable adds a cause when no node takes VMs at all, which the scheduler calls an affinity.
func (e *explanation) noneSchedulable() {
	if e.Nodes == nil || !e.readable("nodes") {
		return
	}
	for i := range e.Nodes {
		if life.TakesNewVMs(&e.Nodes[i]) {
			return
		}
	}
	e.add(rankStack, LayerNode, "nodes", Broken, "NoNodes",
		"no node takes VMs: on none is virt-handler ready (label "+v1.NodeSchedulable+"=true)",
		"kubectl -n "+names.Namespace+" get pods -l kubevirt.io="+names.VirtHandler+" -o wide", "virtctl doctor")
}

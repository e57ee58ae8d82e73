package why

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/why/netpolicy"
)

// way is one direction of policies: whose they are and what they are about.
type way struct {
	direction networkingv1.PolicyType
	// namespace has the policies, peer is the namespace of the other end; empty outside of the cluster.
	namespace, peer string
	reason          string
	// selected is the pod that the policies select, and relation how the other end stands in the sentence.
	selected, relation string
	of                 func(p *path) netpolicy.Result
}

// policies narrows the paths to what NetworkPolicies allow, and adds those that drop the connection.
func (c *connecting) policies(pod *corev1.Pod) {
	source := c.f.Source
	ways := []way{{
		direction: networkingv1.PolicyTypeIngress, namespace: c.Namespace, reason: "IngressDenied",
		selected: "the guest's pod", relation: "from " + source.String(),
		of: func(p *path) netpolicy.Result { return p.ingress },
	}}
	if source.Pod != nil {
		ways[0].peer = source.Pod.Namespace
		ways = append(ways, way{
			direction: networkingv1.PolicyTypeEgress, namespace: source.Pod.Namespace, peer: c.Namespace,
			reason: "EgressDenied", selected: source.String(), relation: "to the guest's pod",
			of: func(p *path) netpolicy.Result { return p.egress },
		})
	}
	for i := range c.paths {
		p := &c.paths[i]
		target := netpolicy.Peer{Pod: pod, Namespace: c.f.Namespaces[c.Namespace], Address: p.to}
		from := netpolicy.Peer{Pod: source.Pod, Address: p.from}
		if source.Pod != nil {
			from.Namespace = c.f.Namespaces[source.Pod.Namespace]
		}
		p.ingress = netpolicy.Ingress(c.f.Policies[c.Namespace], target, from, c.f.Protocol)
		p.ingress = c.asFarAsRead(c.Namespace, p.ingress)
		p.egress = netpolicy.Result{Allowed: netpolicy.All(), Possible: netpolicy.All()}
		if source.Pod != nil {
			p.egress = netpolicy.Egress(c.f.Policies[source.Pod.Namespace], from, target, c.f.Protocol)
			p.egress = c.asFarAsRead(source.Pod.Namespace, p.egress)
		}
		p.open = p.open.Intersect(p.ingress.Allowed).Intersect(p.egress.Allowed)
		p.possible = p.possible.Intersect(p.ingress.Possible).Intersect(p.egress.Possible)
	}
	for i := range ways {
		c.way(&ways[i], pod)
	}
}

// asFarAsRead makes of what no policy was read for something that is possible and not certain.
func (c *connecting) asFarAsRead(namespace string, r netpolicy.Result) netpolicy.Result {
	if _, read := c.f.Policies[namespace]; !read && r.Exempt == "" {
		r.Allowed = nil
	}
	return r
}

// way adds what the policies of one direction drop, once for paths that share it.
func (c *connecting) way(w *way, pod *corev1.Pod) {
	if _, read := c.f.Policies[w.namespace]; !read {
		if slices.ContainsFunc(c.paths, func(p path) bool { return w.of(&p).Exempt == "" }) && c.fresh(w.namespace) {
			c.limits(Unknown, LayerNetwork, "networkpolicies", "PoliciesUnreadable",
				"you may not read the NetworkPolicies of namespace "+w.namespace+", any of which may drop them",
				c.right("networkpolicies", w.namespace))
		}
		return
	}
	type group struct {
		result netpolicy.Result
		paths  []path
	}
	var groups []group
	for _, p := range c.paths {
		result := w.of(&p)
		c.notesOf(w, result)
		at := slices.IndexFunc(groups, func(g group) bool {
			return slices.Equal(g.result.Selecting, result.Selecting) &&
				slices.Equal(g.result.Allowed, result.Allowed) && slices.Equal(g.result.Possible, result.Possible)
		})
		if at < 0 {
			groups, at = append(groups, group{result: result}), len(groups)
		}
		groups[at].paths = append(groups[at].paths, p)
	}
	for _, g := range groups {
		suffix := ""
		if len(groups) > 1 {
			suffix = " by " + family(g.paths[0].from)
		}
		possible := g.result.Possible.Intersect(c.asked)
		if !g.result.Allowed.Contains(possible) {
			c.limits(Unknown, LayerNetwork, "namespace/"+w.peer, "NamespaceUnreadable",
				"the labels of namespace "+w.peer+", which you may not read, decide whether "+named(g.result.Selecting)+
					" in namespace "+w.namespace+" allow "+c.ports()+" "+w.relation+suffix,
				"ask an administrator for the right to read namespace "+w.peer)
		}
		if !possible.Contains(c.asked) {
			c.denied(w, pod, g.result, g.paths, suffix)
		}
	}
}

// fresh reports whether it was not yet said that a namespace's policies cannot be read.
func (c *connecting) fresh(namespace string) bool {
	return !slices.ContainsFunc(c.causes, func(cause Cause) bool {
		return cause.Reason == "PoliciesUnreadable" && strings.Contains(cause.Message, "namespace "+namespace+",")
	})
}

func (c *connecting) notesOf(w *way, r netpolicy.Result) {
	all := r.Invalid
	if r.Exempt != "" && len(c.f.Policies[w.namespace]) > 0 {
		all = append(slices.Clone(all), fmt.Sprintf("no NetworkPolicy for %s holds: %s",
			strings.ToLower(string(w.direction)), r.Exempt))
	}
	for _, note := range all {
		if !slices.Contains(c.notes, note) {
			c.notes = append(c.notes, note)
		}
	}
}

// denied adds the policies that leave ports out, with the rule that would let them in.
func (c *connecting) denied(w *way, pod *corev1.Pod, r netpolicy.Result, paths []path, suffix string) {
	policies, verb := named(r.Selecting), "select"
	if len(r.Selecting) == 1 {
		verb = "selects"
	}
	message := fmt.Sprintf("no rule of %s in namespace %s, which %s %s, allows %s %s%s", policies, w.namespace, verb,
		w.selected, c.ports(), w.relation, suffix)
	if len(r.Possible) > 0 {
		message = fmt.Sprintf("the rules of %s in namespace %s, which %s %s, allow of %s %s%s these ports alone: %s",
			policies, w.namespace, verb, w.selected, c.f.Protocol, w.relation, suffix, r.Possible)
	}
	fixes := []string{
		"kubectl describe networkpolicy " + strings.Join(r.Selecting, " ") + " -n " + w.namespace,
	}
	if c.state() == Broken {
		fixes = slices.Insert(fixes, 0, c.allow(w, pod, r.Selecting[0], paths))
	}
	c.limits(Broken, LayerNetwork, "networkpolicy/"+r.Selecting[0], w.reason, message, fixes...)
}

func named(policies []string) string {
	words := make([]string, len(policies))
	for i, name := range policies {
		words[i] = "networkpolicy/" + name
	}
	return strings.Join(words, ", ")
}

// allow returns the command that adds the missing rule to a policy.
func (c *connecting) allow(w *way, pod *corev1.Pod, policy string, paths []path) string {
	at := slices.IndexFunc(c.f.Policies[w.namespace],
		func(p networkingv1.NetworkPolicy) bool { return p.Namespace == w.namespace && p.Name == policy })
	spec := &c.f.Policies[w.namespace][at].Spec
	ports := []networkingv1.NetworkPolicyPort{{Protocol: &c.f.Protocol}}
	if c.f.Port != 0 {
		port := intstr.FromInt32(c.f.Port)
		ports[0].Port = &port
	}
	var rule any
	field, there := "ingress", len(spec.Ingress) > 0
	if w.direction == networkingv1.PolicyTypeIngress {
		if p := c.f.Source.Pod; p != nil && !p.Spec.HostNetwork && len(lasting(p)) == 0 {
			return fmt.Sprintf("a label for %s, and a rule that selects it in spec.ingress of networkpolicy/%s in "+
				"namespace %s", c.f.Source, policy, w.namespace)
		}
		var addresses []netip.Addr
		for i := range paths {
			addresses = append(addresses, paths[i].from)
		}
		rule = networkingv1.NetworkPolicyIngressRule{From: peers(w.namespace, c.f.Source.Pod, addresses), Ports: ports}
	} else {
		field, there = "egress", len(spec.Egress) > 0
		rule = networkingv1.NetworkPolicyEgressRule{To: peers(w.namespace, pod, nil), Ports: ports}
	}
	where := "/spec/" + field
	if there {
		where += "/-"
	} else {
		rule = []any{rule}
	}
	patch, err := json.Marshal([]map[string]any{{"op": "add", "path": where, "value": rule}})
	if err != nil {
		panic(err) // plain values
	}
	return fmt.Sprintf("kubectl patch networkpolicy %s -n %s --type json -p '%s'", policy, w.namespace, patch)
}

// passing are labels that a pod has of its owner or for one life; the next pod in its place has others.
var passing = []string{
	"pod-template-hash", "controller-revision-hash", "pod-template-generation", "controller-uid", "job-name",
	"apps.kubernetes.io/pod-index", "batch.kubernetes.io/", "statefulset.kubernetes.io/pod-name", v1.CreatedByLabel,
	v1.MigrationJobLabel, v1.NodeNameLabel, v1.VirtualMachineInstanceIDLabel,
}

// peers returns a rule's peers for a pod, or for addresses where no selector finds the other end.
func peers(namespace string, pod *corev1.Pod, addresses []netip.Addr) []networkingv1.NetworkPolicyPeer {
	if pod == nil || pod.Spec.HostNetwork {
		var out []networkingv1.NetworkPolicyPeer
		for _, a := range addresses {
			block := &networkingv1.IPBlock{CIDR: netip.PrefixFrom(a, a.BitLen()).String()}
			out = append(out, networkingv1.NetworkPolicyPeer{IPBlock: block})
		}
		return out
	}
	peer := networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: lasting(pod)}}
	if pod.Namespace != namespace {
		peer.NamespaceSelector = &metav1.LabelSelector{
			MatchLabels: map[string]string{corev1.LabelMetadataName: pod.Namespace},
		}
	}
	return []networkingv1.NetworkPolicyPeer{peer}
}

// lasting returns the labels of a pod that the next one in its place has, too; of a guest's pod the VM's name alone.
func lasting(pod *corev1.Pod) map[string]string {
	if name := pod.Labels[v1.DeprecatedVirtualMachineNameLabel]; name != "" {
		return map[string]string{v1.DeprecatedVirtualMachineNameLabel: name}
	}
	labels := maps.Clone(pod.Labels)
	maps.DeleteFunc(labels, func(key, _ string) bool {
		return slices.ContainsFunc(passing, func(p string) bool { return strings.HasPrefix(key, p) })
	})
	return labels
}

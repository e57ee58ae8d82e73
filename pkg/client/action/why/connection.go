package why

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/why/netpolicy"
)

// Layers of a connection besides those of the chain: the pod or client that connects, and what is between it and the
// guest, the guest's interface included.
const (
	LayerSource  Layer = "source"
	LayerNetwork Layer = "network"
)

// Source is where a connection comes from.
type Source struct {
	// Pod is nil for a client outside of the cluster.
	Pod *corev1.Pod
	// Address is that of a client outside of the cluster.
	Address netip.Addr
}

// String names the source in a sentence.
func (s Source) String() string {
	if s.Pod == nil {
		return s.Address.String()
	}
	return "pod " + s.name()
}

func (s Source) name() string {
	if s.Pod == nil {
		return s.Address.String()
	}
	return s.Pod.Namespace + "/" + s.Pod.Name
}

// addresses returns the source's addresses, the first family's first.
func (s Source) addresses() []netip.Addr {
	if s.Pod == nil {
		return []netip.Addr{s.Address}
	}
	return podAddresses(s.Pod)
}

func podAddresses(pod *corev1.Pod) []netip.Addr {
	var out []netip.Addr
	for _, ip := range append(slices.Clone(pod.Status.PodIPs), corev1.PodIP{IP: pod.Status.PodIP}) {
		a, err := netip.ParseAddr(ip.IP)
		if err == nil && !slices.Contains(out, a.Unmap()) {
			out = append(out, a.Unmap())
		}
	}
	return out
}

// ConnectionFacts are what an explanation of a connection to a guest rests on.
type ConnectionFacts struct {
	Facts
	Source Source
	// Protocol is TCP or UDP, Port the guest's port; 0 asks about all.
	Protocol corev1.Protocol
	Port     int32
	// Policies are the NetworkPolicies of the VM's and the source's namespaces; a namespace whose policies could not be
	// read is missing.
	Policies map[string][]networkingv1.NetworkPolicy
	// SourceVMI is the instance whose guest is in the pod that connects, by a network of Multus that the other guest is
	// on; nil when it is another pod, or could not be read.
	SourceVMI *v1.VirtualMachineInstance
	// SourceGone says that this instance is not there any more.
	SourceGone bool
	// Namespaces has the labels of these namespaces; one that could not be read is missing.
	Namespaces map[string]map[string]string
}

// Connection says what drops connections to the guest.
type Connection struct {
	// From is the pod that connects as NAMESPACE/NAME, or the address of a client outside of the cluster.
	From string `json:"from"`
	// Protocol is TCP or UDP.
	Protocol string `json:"protocol"`
	// Port is the guest's port; absent when all ports are asked about.
	Port int32 `json:"port,omitempty"`
	// Verdict is "ok" when nothing known drops the connection, or not all ports when all are asked about; "waiting"
	// when time alone may help, "broken" when it is dropped, and "unknown" when that depends on what the user may not
	// read.
	Verdict State `json:"verdict"`
	// Summary is one sentence.
	Summary string `json:"summary"`
	// Paths are the ways to the guest, one for each family of addresses that both ends have on a network.
	Paths []Path `json:"paths"`
	// Causes are what drops the connection, the first to fix first; one whose state is ok leaves another way or port.
	Causes []Cause `json:"causes"`
	// Notes are what is easily missed, such as networks that were not looked at.
	Notes []string `json:"notes,omitempty"`
}

// Path is a way to the guest by one family of addresses.
type Path struct {
	// Network is the guest's network besides the pod network; absent for that.
	Network string `json:"network,omitempty"`
	// Family is IPv4 or IPv6, or IP on a network where the addresses are not known.
	Family string `json:"family"`
	// From and To are the addresses of both ends, or their names.
	From string `json:"from"`
	To   string `json:"to"`
	// Ports are those that nothing known drops: "all", "none", or ports and ranges as in "22,8000-8080".
	Ports string `json:"ports"`
}

// path is a Path while it is decided.
type path struct {
	network         string // "" for the pod network
	from, to        netip.Addr
	ingress, egress netpolicy.Result
	// open are the ports asked about that get through, possible those that may.
	open, possible netpolicy.Ports
}

func family(a netip.Addr) string {
	if a.Is4() {
		return string(corev1.IPv4Protocol)
	}
	return string(corev1.IPv6Protocol)
}

// connecting gathers what drops a connection.
type connecting struct {
	*explanation
	f      *ConnectionFacts
	asked  netpolicy.Ports
	paths  []path
	causes []Cause
	// limited are the causes, by index, that are of some ways or ports alone: how bad they are at most, when no other
	// way is left.
	limited map[int]State
	notes   []string
}

// ExplainConnection reports what drops connections from a source to the guest, besides what blocks the VM. The report
// of a VM that does not exist has no connection.
func ExplainConnection(f ConnectionFacts) *Report {
	r := Explain(f.Facts)
	if f.VM == nil && f.VMI == nil {
		return r
	}
	c := &connecting{explanation: &explanation{Facts: f.Facts}, f: &f, asked: netpolicy.All()}
	if f.Port != 0 {
		c.asked = netpolicy.One(f.Port)
	}
	c.sourceRuns()
	running := c.guestRuns(r)
	nic := c.podInterface()
	if pod := c.launcher(); running && nic != nil && c.hasPod(pod) {
		c.find(pod, nic)
		c.listed(pod, nic)
		c.policies(pod)
	}
	if running && c.launcher() != nil {
		c.networks()
	}
	c.unlooked()
	for i, most := range c.limited {
		if c.causes[i].State = c.state(); severity(c.causes[i].State) > severity(most) {
			c.causes[i].State = most
		}
	}
	slices.SortStableFunc(c.causes, func(a, b Cause) int { return cmp.Compare(severity(b.State), severity(a.State)) })
	r.Connection = c.report()
	return r
}

// severity orders states: what is certain to be in the way is the most.
func severity(s State) int {
	return slices.Index([]State{OK, Unknown, Waiting, Broken}, s)
}

func (c *connecting) add(layer Layer, object string, state State, reason, message string, fixes ...string) *Cause {
	c.causes = append(c.causes,
		Cause{Layer: layer, Object: object, Reason: reason, Message: message, State: state, Fixes: fixes})
	return &c.causes[len(c.causes)-1]
}

// limits adds a cause that is of some ways or ports alone: what another way lets through is not dropped by it. most is
// how bad it is where there is none.
func (c *connecting) limits(most State, layer Layer, object, reason, message string, fixes ...string) {
	if c.limited == nil {
		c.limited = map[int]State{}
	}
	c.limited[len(c.causes)] = most
	c.add(layer, object, most, reason, message, fixes...)
}

// state returns that of a cause which leaves some ports out: it drops the connection when nothing else gets through.
func (c *connecting) state() State {
	open, possible := c.through()
	switch {
	case len(open) > 0:
		return OK
	case len(possible) > 0:
		return Unknown
	}
	return Broken
}

// through returns the ports asked about that get through on any path, and those that may.
func (c *connecting) through() (open, possible netpolicy.Ports) {
	for i := range c.paths {
		open = open.Union(c.paths[i].open)
		possible = possible.Union(c.paths[i].possible)
	}
	return open, possible
}

// ports names what is asked about: "TCP port 80", or "any TCP port".
func (c *connecting) ports() string {
	if c.f.Port == 0 {
		return fmt.Sprintf("any %s port", c.f.Protocol)
	}
	return fmt.Sprintf("%s port %d", c.f.Protocol, c.f.Port)
}

func (c *connecting) report() *Connection {
	out := &Connection{
		From: c.f.Source.name(), Protocol: string(c.f.Protocol), Port: c.f.Port, Verdict: OK,
		Paths: []Path{}, Causes: c.causes, Notes: c.notes,
	}
	if out.Causes == nil {
		out.Causes = []Cause{}
	}
	for i := range c.paths {
		p := &c.paths[i]
		way := Path{
			Network: p.network, Family: "IP", From: out.From, To: c.Namespace + "/" + c.Name, Ports: p.open.String(),
		}
		if p.from.IsValid() && p.to.IsValid() {
			way.Family, way.From, way.To = family(p.from), p.from.String(), p.to.String()
		}
		out.Paths = append(out.Paths, way)
	}
	if len(c.causes) > 0 {
		out.Verdict = c.causes[0].State
	}
	what := fmt.Sprintf("%s connections from %s", c.f.Protocol, c.f.Source)
	if c.f.Port != 0 {
		what += fmt.Sprintf(" to port %d", c.f.Port)
	}
	switch out.Verdict {
	case Broken:
		out.Summary = what + " are dropped: " + c.causes[0].Message
	case Waiting:
		out.Summary = what + " do not get through yet: " + c.causes[0].Message
	case Unknown:
		out.Summary = what + " may be dropped: " + c.causes[0].Message
	default:
		out.Summary = "nothing known drops " + what
		if open, _ := c.through(); !open.Contains(c.asked) {
			out.Summary += " to the ports " + open.String() + "; those to other ports are dropped"
		}
	}
	return out
}

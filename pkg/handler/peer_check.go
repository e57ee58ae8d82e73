package handler

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/handler/nodestatus"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/report/host"
	"github.com/virtkit/virtkit/pkg/vm/fencing"
	"github.com/virtkit/virtkit/pkg/vm/fencing/boottime"
)

const (
	// idleLook is the interval of looks for launchers that end their guests.
	idleLook = 5 * time.Second
	// listLeast, listMost and listPerNode say how often the nodes are listed: the more there are the less often, since
	// each node does.
	listLeast, listMost, listPerNode = time.Minute, 30 * time.Minute, time.Second
	// listAgain is the pause after a list that failed, listTimeout bounds one.
	listAgain, listTimeout = 15 * time.Second, 10 * time.Second
	// goneAfter is the age of a heartbeat, by wall clocks, from which on a node is not asked any more.
	goneAfter = time.Hour
	// hastenEvery is the interval at which other nodes are asked to beat faster; they do so for three times as long.
	hastenEvery = time.Minute
	// always is longer than any silence.
	always = time.Duration(math.MaxInt64)
)

// peerCheck keeps the guests of this node alive while nobody can fence it (package fencing): it publishes the node's
// Set, and asks the Set's virt-handlers when this node's heartbeat is not acknowledged. Inputs: the nodes' heartbeats,
// and what the other virt-handlers answer. Outputs: the time to pass to launchers, and annotations of the node.
type peerCheck struct {
	node     string
	renewals *renewals
	// list lists the nodes. ask asks the virt-handler of one at an address for how long it has been silent, and for a
	// heartbeat every so often.
	list func(ctx context.Context) ([]metav1.PartialObjectMetadata, error)
	ask  func(ctx context.Context, node, address string, every time.Duration) (time.Duration, error)
	// running reports whether a pod has processes left.
	running func(pod types.UID) bool
	now     func() time.Time
	log     *slog.Logger
	tick    func(time.Duration) <-chan time.Time

	mu sync.Mutex
	// wanted is the Set to publish; published is the one that the API server has, and pending one that it may have
	// instead. known says that this virt-handler has seen what the API server has.
	known                      bool
	wanted, published, pending fencing.Set
	// unresumed are launchers that an earlier virt-handler has suspended, pausing those that this one is about to.
	unresumed, pausing []types.UID
	// addresses are the addresses of other nodes' virt-handlers.
	addresses map[string]string

	nextList, nextReport time.Duration
	held                 bool
}

// run keeps watch until ctx ends.
func (c *peerCheck) run(ctx context.Context) error {
	for {
		wait := idleLook
		if fences := c.renewals.fences(); len(fences) > 0 {
			wait = fencing.AskEvery(fences[0])
			c.look(ctx, fences[0])
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.tick(wait):
		}
	}
}

// look asks the Set if need be; shortest is the least --fence-after of the node's launchers.
func (c *peerCheck) look(ctx context.Context, shortest time.Duration) {
	at := boottime.Now()
	// A list that hangs because the API server is away must not use up the guests' time.
	if at >= c.nextList && c.renewals.silence() < fencing.SilentFor(shortest)/2 {
		c.nextList = at + c.choose(ctx)
	}
	at = boottime.Now() // before it is looked what the API server may have
	sets, known := c.sets()
	silent := c.renewals.silence() >= fencing.SilentFor(shortest)
	if !silent {
		c.held = false
	}
	every := fencing.HeartbeatPeriod(shortest)
	quorum := slices.ContainsFunc(sets, fencing.Set.Quorum)
	hasten := quorum && every < nodestatus.Period && at >= c.nextReport
	switch {
	case !known, !silent && !hasten:
		return
	case !quorum:
		c.renewals.noteSilence(at, always)
		return
	}
	if hasten {
		c.nextReport = at + hastenEvery
	}
	answers := c.round(ctx, sets, min(every, nodestatus.Period), fencing.AskWithin(shortest))
	if !silent {
		return
	}
	silence := always
	for _, set := range sets {
		if set.Quorum() {
			silence = min(silence, set.Silence(answers))
		}
	}
	c.renewals.noteSilence(at, silence)
	if held := silence >= fencing.SilentFor(shortest); held != c.held {
		c.held = held
		if held {
			c.log.Warn("most nodes hear nothing of the API server: guests go on without its word", "silence", silence)
		} else {
			c.log.Warn("the API server hears other nodes, or they do not answer: guests of this node end in time",
				"answers", len(answers))
		}
	}
}

// sets returns the sets that the API server may have; they are not known before the first heartbeat.
func (c *peerCheck) sets() (sets []fencing.Set, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	sets = []fencing.Set{c.published}
	if c.pending != nil {
		sets = append(sets, c.pending)
	}
	return sets, c.known
}

// round asks the members of the sets at once, and returns who has been silent for how long; this node's own is among
// them.
func (c *peerCheck) round(
	ctx context.Context, sets []fencing.Set, every, within time.Duration,
) map[string]time.Duration {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	members := map[string]string{}
	c.mu.Lock()
	for _, set := range sets {
		for _, name := range set {
			if address := c.addresses[name]; address != "" && name != c.node {
				members[name] = address
			}
		}
	}
	c.mu.Unlock()
	answers := map[string]time.Duration{c.node: c.renewals.silence()}
	var mu sync.Mutex
	var asking sync.WaitGroup
	for name, address := range members {
		asking.Go(func() {
			silence, err := c.ask(ctx, name, address, every)
			if err != nil {
				c.log.Debug("another node was not asked for its heartbeat", "node", name, "err", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if ctx.Err() == nil { // later answers say nothing of the time before
				answers[name] = silence
			}
		})
	}
	asking.Wait()
	return answers
}

// choose lists the nodes and chooses the Set, and returns when to do so again.
func (c *peerCheck) choose(ctx context.Context) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	nodes, err := c.list(ctx)
	if err != nil {
		if ctx.Err() == nil {
			c.log.Warn("the nodes are not known that keep guests here alive without the API server", "err", err)
		}
		return listAgain
	}
	var all []string
	addresses := map[string]string{}
	for i := range nodes {
		if address := c.answers(&nodes[i]); address != "" {
			all = append(all, nodes[i].Name)
			addresses[nodes[i].Name] = address
		}
	}
	wanted := fencing.Choose(c.node, all)
	c.mu.Lock()
	changed := !slices.Equal(wanted, c.wanted)
	c.wanted, c.addresses = wanted, addresses
	c.mu.Unlock()
	if changed && c.renewals.beat != nil {
		c.renewals.beat()
	}
	return min(max(listLeast, time.Duration(len(nodes))*listPerNode), listMost)
}

// answers returns the address of a node's virt-handler, if it is one that answers.
func (c *peerCheck) answers(n *metav1.PartialObjectMetadata) string {
	beat, err := host.Heartbeat(n)
	if err != nil || c.now().Sub(beat) > goneAfter {
		return ""
	}
	address, err := netip.ParseAddr(n.Annotations[names.AnnotationHandlerAddress])
	if err != nil {
		return ""
	}
	return address.String()
}

// settle returns what is to change of the node's annotations. A heartbeat was acknowledged with this node, so that
// nothing that was written on condition of an older one comes true any more.
func (c *peerCheck) settle(n *corev1.Node) map[string]any {
	change := map[string]any{}
	c.mu.Lock()
	defer c.mu.Unlock()
	paused := n.Annotations[names.AnnotationHeartbeatPaused]
	c.hold(paused)
	c.unresumed = c.suspended(paused)
	want := c.unresumed
	if c.alone() {
		want = slices.Concat(c.renewals.pausable(), c.unresumed)
	}
	switch now := joinPods(want); {
	case now == paused:
	case now == "":
		change[names.AnnotationHeartbeatPaused] = nil
	case c.alone():
		change[names.AnnotationHeartbeatPaused] = now
	}
	c.known, c.published, c.pending = true, fencing.ParseSet(n.Annotations[names.AnnotationFencingSet]), nil
	if c.wanted != nil && !slices.Equal(c.wanted, c.published) {
		c.pending = c.wanted
		change[names.AnnotationFencingSet] = c.wanted.String()
	}
	return change
}

// settled records the outcome; nil means that nobody knows.
func (c *peerCheck) settled(n *corev1.Node) {
	if n == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.published, c.pending = fencing.ParseSet(n.Annotations[names.AnnotationFencingSet]), nil
	c.hold(n.Annotations[names.AnnotationHeartbeatPaused])
}

// alone reports whether there are too few nodes for virt-controller ever to count. Launchers do not count then either:
// a node that was asleep, or whose virt-handler does not come back, would end its guests for nothing.
func (c *peerCheck) alone() bool { return c.wanted != nil && !c.wanted.Quorum() }

// hold suspends the launchers of an annotation while the node is alone, and renews them when it is no more.
func (c *peerCheck) hold(paused string) {
	var pods []types.UID
	if c.alone() {
		here := c.renewals.pausable()
		pods = slices.DeleteFunc(parsePods(paused), func(pod types.UID) bool { return !slices.Contains(here, pod) })
	}
	c.renewals.hold(pods)
}

// pause returns the annotation that names the launchers that are to be suspended, and those that still are. It is empty
// as long as it is not known whether there are any.
func (c *peerCheck) pause() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		return ""
	}
	c.pausing = c.renewals.pausable()
	return joinPods(slices.Concat(c.pausing, c.unresumed))
}

// joinPods writes the annotation that names pods, parsePods reads it.
func joinPods(pods []types.UID) string {
	out := make([]string, len(pods))
	for i, pod := range pods {
		out[i] = string(pod)
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), ",")
}

func parsePods(text string) (out []types.UID) {
	for pod := range strings.SplitSeq(text, ",") {
		if pod != "" {
			out = append(out, types.UID(pod))
		}
	}
	return out
}

// paused suspends the launchers, now that nobody counts this node's silence.
func (c *peerCheck) paused() {
	ctx, cancel := context.WithTimeout(context.Background(), suspendTimeout)
	defer cancel()
	c.mu.Lock()
	pods := c.pausing
	c.mu.Unlock()
	if missing := c.renewals.suspend(ctx, pods); missing > 0 {
		c.log.Warn("launchers do not know that virt-handler stops: their guests end unless it is back in time",
			"launchers", missing)
	}
}

// suspended returns the launchers of an annotation that may not count yet: this virt-handler has not renewed them, and
// they are not gone.
func (c *peerCheck) suspended(paused string) []types.UID {
	return slices.DeleteFunc(parsePods(paused),
		func(pod types.UID) bool { return c.renewals.counting(pod) || !c.running(pod) })
}

// listNodes lists what is to be known of nodes, from the API server's cache: what is chosen need not be new.
func listNodes(ctx context.Context, from client.Reader) ([]metav1.PartialObjectMetadata, error) {
	list := metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	if err := from.List(ctx, &list, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	return list.Items, nil
}

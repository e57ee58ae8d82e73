package handler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/handler/podfs"
	"github.com/virtkit/virtkit/pkg/names"
)

const (
	// disarmedPeriod and armedPeriod are the pauses between two looks at the API server, when it has answered and when
	// it has not.
	disarmedPeriod = 10 * time.Second
	armedPeriod    = time.Second
	// lookTimeout bounds one question.
	lookTimeout = 3 * time.Second
	// reportAgain is the interval at which unknown guests are reported again.
	reportAgain = 10 * time.Minute
)

// watchdog is the fencing watchdog: it ends at once what runs on the node although Kubernetes has removed its pod. The
// node was cut off, somebody fenced it, and the guest may run elsewhere by now, from the same disks. The kubelet would
// end it too, but with the pod's grace period, in which the guest goes on to write.
//
// It kills only when the API server's answer follows from those before. An etcd that was restored does not know the
// pods that were made since its backup, which nobody has removed: those it leaves alone, and says so.
//
// It has a connection of its own to the API server, which does not outlive a failure, so that it knows within
// seconds of the network's return. Inputs: the kubelet's pod directory, and the pods of the node, asked for and not
// watched. Output: SIGKILL.
type watchdog struct {
	node *Node
	// pods lists the UIDs of the node's pods; fresh ones must not come from a cache.
	pods func(ctx context.Context, fresh bool) (podList, error)
	// cluster is the UID of the namespace kube-system.
	cluster func(ctx context.Context) (types.UID, error)
	kill    func(pod types.UID) (int, error)
	// shutdown asks a launcher to end, with the grace period of its guest.
	shutdown func(ctx context.Context, pod types.UID) error
	// back is called when the API server answers again.
	back func()
	// ended is called with each pod that was ended, and why; held with how many are not known, and why they are let
	// live.
	ended func(pod types.UID, why string)
	held  func(message string)
	// confirmed is the token of the history that an administrator says is over (names.AnnotationRestored).
	confirmed func() string
	// fenceAfter is the time for which the API server may be silent before all guests of the node are ended; zero means
	// for ever.
	fenceAfter time.Duration
	log        *slog.Logger
	tick       func(time.Duration) <-chan time.Time
	// kick asks for a look now, since a pod was removed.
	kick <-chan struct{}

	seen history
	// heard is when the last look began that was answered, or for which there was no reason.
	heard time.Time
	// armed: the API server is silent, and the time runs after which all guests are ended.
	armed bool
	// reported is the last report on guests that are not known, made at reportedAt.
	reported   string
	reportedAt time.Time
}

// run looks until the context ends.
func (d *watchdog) run(ctx context.Context) error {
	d.heard = d.node.Now()
	kicked := true
	for {
		if err := d.look(ctx, kicked); err != nil && ctx.Err() == nil {
			d.log.Warn("the node's guests were not all compared with its pods", "err", err)
		}
		wait := disarmedPeriod
		if d.armed {
			wait = armedPeriod
		}
		select {
		case <-ctx.Done():
			return nil
		case <-d.tick(wait):
			kicked = false
		case <-d.kick:
			kicked = true
		}
	}
}

// look compares the launchers of the node with the pods that it should have. What is there is read first: a pod
// that the API server does not know then was removed, and is not one of which it has yet to hear. A launcher that
// cannot be looked at does not keep the others from it.
func (d *watchdog) look(ctx context.Context, suspicious bool) error {
	there, unread := d.launchers()
	begun := d.node.Now()
	if len(there) == 0 && !d.armed {
		d.heard = begun
		return unread
	}
	known, err := d.ask(ctx, suspicious)
	if err != nil {
		d.armed = true
		d.fence(there)
		return errors.Join(unread, err)
	}
	fresh := suspicious
	if (len(without(there, known.pods)) > 0 || d.seen.older(known)) && !fresh {
		if known, err = d.ask(ctx, true); err != nil {
			d.armed = true
			return errors.Join(unread, err)
		}
		fresh = true
	}
	d.heard = begun
	err = d.judge(ctx, without(there, known.pods), known, fresh)
	if d.armed {
		d.armed = false
		d.log.Info("the API server answers again")
		d.back()
	}
	return errors.Join(unread, err)
}

// launchers returns the launchers of the node: those with a socket, and those that virt-handler has prepared, should
// one have removed its socket. What it could not look at is an error, and does not hide the rest.
func (d *watchdog) launchers() ([]types.UID, error) {
	there, err := podfs.Launchers(d.node.PodsDir)
	prepared, planErr := d.node.plans.Pods()
	for _, pod := range prepared {
		if _, err := os.Lstat(filepath.Join(d.node.PodsDir, string(pod))); err == nil && !slices.Contains(there, pod) {
			there = append(there, pod)
		}
	}
	return there, errors.Join(err, planErr)
}

// judge ends the launchers whose pods were removed, if the list can be believed.
func (d *watchdog) judge(ctx context.Context, strays []types.UID, known podList, fresh bool) error {
	now := d.node.Now()
	d.seen.Ending = slices.DeleteFunc(d.seen.Ending, func(pod types.UID) bool { return !slices.Contains(strays, pod) })
	if !fresh {
		if d.seen.Cluster != "" {
			return d.seen.follow(known, "", now)
		}
		// What was seen is to have a name before it matters.
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	cluster, err := d.cluster(ctx)
	if err != nil {
		return err // nothing is ended by a list that cannot be judged
	}
	why := d.seen.doubt(known, cluster, now)
	switch {
	case why == "":
		for _, pod := range without(strays, d.seen.Ending) {
			d.end(pod, "its pod was removed from the cluster")
		}
		return d.seen.follow(known, cluster, now)
	case !fresh:
		return nil // the next look asks for what no cache says
	case len(strays) == 0:
		d.log.Warn("the cluster was restored or replaced; it knows all guests of this node", "reason", why)
		d.reported = ""
		return d.seen.adopt(known, cluster, now)
	case d.confirmed() == d.seen.token():
		return d.dismiss(ctx, strays, known, cluster)
	}
	d.hold(strays, why, now)
	return d.seen.save(now)
}

// hold lets guests live that the API server does not know although nobody may have removed them, and says so.
func (d *watchdog) hold(strays []types.UID, why string, now time.Time) {
	message := fmt.Sprintf("The API server does not know %d guests that run on this node, and they are left alone, "+
		"since %s. To shut them down: kubectl annotate --overwrite node %s %s=%s", len(strays), why, d.node.Name,
		names.AnnotationRestored, d.seen.token())
	if message == d.reported && now.Sub(d.reportedAt) < reportAgain {
		return
	}
	d.reported, d.reportedAt = message, now
	d.log.Error("guests of this node are not known to the cluster and left alone", "reason", why, "pods", strays)
	d.held(message)
}

// dismiss shuts down the guests that an administrator says are not to be: in order, since none of them runs elsewhere.
func (d *watchdog) dismiss(ctx context.Context, strays []types.UID, known podList, cluster types.UID) error {
	d.reported = ""
	d.seen.Ending = strays
	if err := d.seen.adopt(known, cluster, d.node.Now()); err != nil {
		return err
	}
	var errs []error
	for _, pod := range strays {
		d.log.Warn("guest shut down", "pod", pod, "reason", "the restored cluster does not know it")
		errs = append(errs, d.shutdown(ctx, pod))
	}
	return errors.Join(errs...)
}

func (d *watchdog) ask(ctx context.Context, fresh bool) (podList, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	return d.pods(ctx, fresh)
}

// fence ends all guests of a node that has been without the API server for too long: whoever takes its silence for
// its end, and starts them elsewhere, is right then.
func (d *watchdog) fence(there []types.UID) {
	silence := d.node.Now().Sub(d.heard)
	if d.fenceAfter == 0 || silence < d.fenceAfter {
		return
	}
	for _, pod := range there {
		d.end(pod, fmt.Sprintf("the API server has been silent for %s", silence.Round(time.Second)))
	}
}

func (d *watchdog) end(pod types.UID, why string) {
	count, err := d.kill(pod)
	if err != nil {
		d.log.Warn("a guest that must not run was not ended", "pod", pod, "err", err)
	}
	if count > 0 {
		d.log.Warn("guest ended", "pod", pod, "reason", why, "processes", count)
		d.ended(pod, why)
	}
}

// without returns the elements of a that are not in b.
func without(a, b []types.UID) []types.UID {
	return slices.DeleteFunc(slices.Clone(a), func(pod types.UID) bool { return slices.Contains(b, pod) })
}

// asker asks the API server over connections of its own.
type asker struct {
	reader client.Client
	node   string
}

func newAsker(config *rest.Config, node string) (*asker, error) {
	config = rest.CopyConfig(config)
	config.Dial = (&net.Dialer{Timeout: lookTimeout}).DialContext
	config.NextProtos = []string{"http/1.1"} // a request that is given up takes its connection with it
	config.Timeout = lookTimeout
	reader, err := client.New(config, client.Options{Scheme: newScheme()})
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return &asker{reader: reader, node: node}, nil
}

// pods lists the node's pods.
func (a *asker) pods(ctx context.Context, fresh bool) (podList, error) {
	options := metav1.ListOptions{ResourceVersion: "0"}
	if fresh {
		options.ResourceVersion = ""
	}
	list := metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	if err := a.reader.List(ctx, &list, &client.ListOptions{Raw: &options},
		client.MatchingFields{"spec.nodeName": a.node}); err != nil {
		return podList{}, fmt.Errorf("list the pods of node %s: %w", a.node, err)
	}
	out := podList{resourceVersion: list.ResourceVersion, pods: make([]types.UID, 0, len(list.Items))}
	for i := range list.Items {
		out.pods = append(out.pods, list.Items[i].UID)
	}
	return out, nil
}

// cluster returns the UID of the namespace kube-system, which a cluster keeps for life.
func (a *asker) cluster(ctx context.Context) (types.UID, error) {
	namespace := metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := a.reader.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &namespace); err != nil {
		return "", fmt.Errorf("get namespace %s: %w", metav1.NamespaceSystem, err)
	}
	return namespace.UID, nil
}

// signal asks a goroutine for something; asking again before it has looked is asking once.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

func (s signal) call() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// watchdog returns this node's watchdog.
func (h *handler) watchdog(events record.EventRecorder) *watchdog {
	seen, err := loadHistory(filepath.Join(h.state, "seen.json"))
	if err != nil {
		h.log.Warn("it is not known what this node has seen of its cluster", "err", err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: h.options.node, UID: types.UID(h.options.node)}}
	return &watchdog{
		node: h.node, pods: h.ask.pods, cluster: h.ask.cluster, log: h.log, tick: time.After, kick: h.removed,
		fenceAfter: h.fenceAfter, seen: seen, confirmed: h.confirmed.get,
		kill:     func(pod types.UID) (int, error) { return podfs.Kill(h.node.ProcDir, pod) },
		shutdown: func(ctx context.Context, pod types.UID) error { return h.node.terminate(ctx, pod) },
		back: func() {
			// What was open may be dead without knowing.
			h.connections.CloseAll()
			h.beat.call()
		},
		ended: func(pod types.UID, why string) {
			events.Eventf(node, corev1.EventTypeWarning, ReasonGuestFenced,
				"The guest in pod %s was killed: %s", pod, why)
		},
		held: func(message string) { events.Event(node, corev1.EventTypeWarning, ReasonGuestsUnknown, message) },
	}
}

// terminate has a launcher end as the kubelet would: with the grace period of its guest.
func (n *Node) terminate(ctx context.Context, pod types.UID) error {
	run, err := podfs.OpenRun(n.PodsDir, pod)
	if err != nil {
		return err
	}
	defer run.Close()
	conn, err := run.Dial(ctx, names.SocketLauncher)
	if err != nil {
		return err
	}
	defer conn.Close()
	process, err := podfs.Peer(conn, n.ProcDir, n.PodsDir, pod)
	if err != nil {
		return err
	}
	defer process.Close()
	return process.Terminate()
}

// confirmation is the node's annotation names.AnnotationRestored, as the last heartbeat saw it.
type confirmation struct{ value atomic.Value }

func (c *confirmation) saw(node *corev1.Node) {
	c.value.Store(node.Annotations[names.AnnotationRestored])
}

func (c *confirmation) get() string {
	value, _ := c.value.Load().(string)
	return value
}

// ReasonGuestFenced and ReasonGuestsUnknown are the reasons of events on a node.
const (
	ReasonGuestFenced   = "GuestFenced"
	ReasonGuestsUnknown = "GuestsUnknown"
)

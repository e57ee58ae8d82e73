package handler

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/handler/podfs"
)

const (
	// calm and alarmed are the pauses between two looks at the API server, when it has answered and when it has not.
	calm    = 10 * time.Second
	alarmed = time.Second
	// sentinelTimeout bounds one look.
	sentinelTimeout = 3 * time.Second
)

// sentinel ends at once what runs on the node although Kubernetes has removed its pod: the node was cut off, somebody
// fenced it, and the guest may run elsewhere by now, from the same disks. The kubelet would end it too, but
// with the pod's grace period, in which the guest goes on to write.
//
// It has a connection of its own to the API server, which does not outlive a failure, so that it knows within
// seconds of the network's return. Inputs: the kubelet's pod directory, and the pods of the node, asked for and not
// watched. Output: SIGKILL.
type sentinel struct {
	node *Node
	// pods lists the UIDs of the node's pods; fresh ones must not come from a cache.
	pods func(ctx context.Context, fresh bool) ([]types.UID, error)
	kill func(pod types.UID) (int, error)
	// back is called when the API server answers again.
	back func()
	// ended is called with each pod that was ended, and why.
	ended func(pod types.UID, why string)
	// fenceAfter is how long the API server may be silent before all guests of the node are ended; zero is for ever.
	fenceAfter time.Duration
	log        *slog.Logger
	tick       func(time.Duration) <-chan time.Time
	// kick asks for a look now, since a pod was removed.
	kick <-chan struct{}

	// heard is when the last look began that was answered, or for which there was no reason.
	heard  time.Time
	silent bool
}

// run looks until the context ends.
func (s *sentinel) run(ctx context.Context) error {
	s.heard = s.node.Now()
	kicked := true
	for {
		if err := s.look(ctx, kicked); err != nil && ctx.Err() == nil {
			s.log.Warn("the node's pods are not known", "error", err)
		}
		wait := calm
		if s.silent {
			wait = alarmed
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.tick(wait):
			kicked = false
		case <-s.kick:
			kicked = true
		}
	}
}

// look compares the launchers of the node with the pods that it should have. What is there is read first: a pod
// that the API server does not know then was removed, and is not one that has yet to be told.
func (s *sentinel) look(ctx context.Context, suspicious bool) error {
	there, err := podfs.Launchers(s.node.PodsDir)
	if err != nil {
		return err
	}
	begun := s.node.Now()
	if len(there) == 0 && !s.silent {
		s.heard = begun
		return nil
	}
	known, err := s.ask(ctx, suspicious)
	if err != nil {
		s.silent = true
		s.fence(there)
		return err
	}
	if stale := without(there, known); len(stale) > 0 && !suspicious {
		if known, err = s.ask(ctx, true); err != nil {
			s.silent = true
			return err
		}
	}
	s.heard = begun
	for _, pod := range without(there, known) {
		s.end(pod, "its pod was removed from the cluster")
	}
	if s.silent {
		s.silent = false
		s.log.Info("the API server answers again")
		s.back()
	}
	return nil
}

func (s *sentinel) ask(ctx context.Context, fresh bool) ([]types.UID, error) {
	ctx, cancel := context.WithTimeout(ctx, sentinelTimeout)
	defer cancel()
	return s.pods(ctx, fresh)
}

// fence ends all guests of a node that has been without the API server for too long: whoever takes its silence for
// its end, and starts them elsewhere, is right then.
func (s *sentinel) fence(there []types.UID) {
	silence := s.node.Now().Sub(s.heard)
	if s.fenceAfter == 0 || silence < s.fenceAfter {
		return
	}
	for _, pod := range there {
		s.end(pod, fmt.Sprintf("the API server has been silent for %s", silence.Round(time.Second)))
	}
}

func (s *sentinel) end(pod types.UID, why string) {
	count, err := s.kill(pod)
	if err != nil {
		s.log.Warn("a guest that must not run was not ended", "pod", pod, "error", err)
	}
	if count > 0 {
		s.log.Warn("guest ended", "pod", pod, "reason", why, "processes", count)
		s.ended(pod, why)
	}
}

// without is what is in a but not in b.
func without(a, b []types.UID) []types.UID {
	return slices.DeleteFunc(slices.Clone(a), func(pod types.UID) bool { return slices.Contains(b, pod) })
}

// podLister lists a node's pods over connections of its own.
func podLister(config *rest.Config, node string) (func(ctx context.Context, fresh bool) ([]types.UID, error), error) {
	config = rest.CopyConfig(config)
	config.Dial = (&net.Dialer{Timeout: sentinelTimeout}).DialContext
	config.NextProtos = []string{"http/1.1"} // a request that is given up takes its connection with it
	config.Timeout = sentinelTimeout
	reader, err := client.New(config, client.Options{Scheme: newScheme()})
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return func(ctx context.Context, fresh bool) ([]types.UID, error) {
		options := metav1.ListOptions{ResourceVersion: "0"}
		if fresh {
			options.ResourceVersion = ""
		}
		list := metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
		if err := reader.List(ctx, &list, &client.ListOptions{Raw: &options}, client.MatchingFields{"spec.nodeName": node}); err != nil {
			return nil, fmt.Errorf("list the pods of node %s: %w", node, err)
		}
		uids := make([]types.UID, 0, len(list.Items))
		for i := range list.Items {
			uids = append(uids, list.Items[i].UID)
		}
		return uids, nil
	}, nil
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

// sentinel is that of this node.
func (h *handler) sentinel(events record.EventRecorder) *sentinel {
	return &sentinel{
		node: h.node, pods: h.listPods, log: h.log, tick: time.After, kick: h.removed, fenceAfter: h.fenceAfter,
		kill: func(pod types.UID) (int, error) { return podfs.Kill(h.node.ProcDir, pod) },
		back: func() {
			// What was open may be dead without knowing.
			h.connections.CloseAll()
			h.beat.call()
		},
		ended: func(pod types.UID, why string) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: h.options.node, UID: types.UID(h.options.node)}}
			events.Eventf(node, corev1.EventTypeWarning, ReasonGuestFenced, "The guest in pod %s was killed: %s", pod, why)
		},
	}
}

// ReasonGuestFenced is that of an event on a node.
const ReasonGuestFenced = "GuestFenced"

// Package events selects the events that are about virtual machines: about the VM, its instance, its migrations and its
// launcher's pods.
package events

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/outage"
	"github.com/virtkit/virtkit/pkg/names"
)

// Selection says which events.
type Selection struct {
	// Namespace is empty for all.
	Namespace string
	// Names are the VMs', none for all.
	Names []string
	// Types are Normal, Warning; none is all.
	Types []string
	// Since leaves out what was seen last before; zero is no bound.
	Since time.Time

	// moves has the VM that each migration is of, by their names: a migration may be called anything.
	moves map[string]string
}

// learn reads which migrations are the VMs'. A user who may not read them gets events of those that are called after
// a VM.
func (s *Selection) learn(ctx context.Context, c *client.Client) error {
	if len(s.Names) == 0 {
		return nil
	}
	list, err := c.MigrationList(ctx, s.Namespace, metav1.ListOptions{})
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list migrations: %w", err)
	}
	s.moves = map[string]string{}
	for i := range list.Items {
		s.moves[list.Items[i].Name] = list.Items[i].Spec.VMIName
	}
	return nil
}

// kinds whose events are printed, by involvedObject.kind.
var kinds = []string{
	"VirtualMachine", "VirtualMachineInstance", migration, "VirtualMachineInstanceReplicaSet",
	"VirtualMachinePool", "KubeVirt",
}

const migration = "VirtualMachineInstanceMigration"

// launcherPrefix begins the name of a launcher's pod, hotplugPrefix that of a pod that holds hotplugged volumes.
const (
	launcherPrefix = names.VirtLauncher + "-"
	hotplugPrefix  = names.HotplugPodPrefix
)

// Match reports whether an event is selected.
func (s Selection) Match(e *corev1.Event) bool {
	if len(s.Types) > 0 && !slices.ContainsFunc(s.Types, func(t string) bool { return strings.EqualFold(t, e.Type) }) {
		return false
	}
	if !s.Since.IsZero() && When(e).Before(s.Since) {
		return false
	}
	return len(s.Names) == 0 && s.of(e, "") ||
		slices.ContainsFunc(s.Names, func(name string) bool { return s.of(e, name) })
}

// of reports whether an event is about a VM.
func (s Selection) of(e *corev1.Event, vm string) bool {
	return Of(e.InvolvedObject.Kind, e.InvolvedObject.Name, vm, s.moves)
}

// Without returns the names of which no event is in list, which List made.
func (s Selection) Without(list []corev1.Event) []string {
	if len(s.Names) == 1 && len(list) > 0 {
		return nil // all are its own, whatever its migrations are called
	}
	var out []string
	for _, name := range s.Names {
		if !slices.ContainsFunc(list, func(e corev1.Event) bool { return s.of(&e, name) }) {
			out = append(out, name)
		}
	}
	return out
}

// Of reports whether an object is a VM's: the VM, its instance, a pod of it, a migration. moves has the VM of each
// migration that is known, by their names; others are found by their names. With "" for the VM the object may be
// any one's.
func Of(kind, object, vm string, moves map[string]string) bool {
	switch {
	case kind == "Pod" && vm == "":
		return strings.HasPrefix(object, launcherPrefix) || strings.HasPrefix(object, hotplugPrefix)
	case kind == "Pod":
		return podOf(object, vm)
	case !slices.Contains(kinds, kind):
		return false
	case kind == migration && vm != "":
		if of, known := moves[object]; known {
			return of == vm
		}
		return strings.HasPrefix(object, vm+"-")
	}
	return vm == "" || object == vm
}

// podOf reports whether a pod is the launcher's of an instance: virt-launcher-NAME-HASH, where the hash has no dash.
func podOf(pod, name string) bool {
	for _, prefix := range []string{launcherPrefix + name + "-", hotplugPrefix + name + "-"} {
		if rest, ok := strings.CutPrefix(pod, prefix); ok && !strings.Contains(rest, "-") {
			return true
		}
	}
	return strings.HasPrefix(pod, hotplugPrefix+name)
}

// MachineOf returns the name of the VM that an object is, or is of as far as its name and moves, the VM of each
// migration, say it: empty of all other objects.
func MachineOf(kind, object string, moves map[string]string) string {
	switch kind {
	case "VirtualMachine", "VirtualMachineInstance":
		return object
	case migration:
		return moves[object]
	case "Pod":
		for _, prefix := range []string{launcherPrefix, hotplugPrefix} {
			if rest, ok := strings.CutPrefix(object, prefix); ok {
				return rest[:max(0, strings.LastIndexByte(rest, '-'))]
			}
		}
	}
	return ""
}

// When returns when an event was seen last.
func When(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil && !e.Series.LastObservedTime.IsZero():
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	}
	return e.CreationTimestamp.Time
}

// Count returns how often it was seen.
func Count(e *corev1.Event) int32 {
	if e.Series != nil {
		return max(1, e.Series.Count)
	}
	return max(1, e.Count)
}

func path(namespace string) string {
	if namespace == "" {
		return "/api/v1/events"
	}
	return "/api/v1/namespaces/" + namespace + "/events"
}

// List reads the events that are selected, the oldest first.
func List(ctx context.Context, c *client.Client, s Selection) (*corev1.EventList, error) {
	if err := s.learn(ctx, c); err != nil {
		return nil, err
	}
	all := &corev1.EventList{}
	if err := c.Read(ctx, path(s.Namespace), nil, all); err != nil {
		return nil, fmt.Errorf("list events: %w", err)
	}
	all.APIVersion, all.Kind = "v1", "EventList"
	all.Items = slices.DeleteFunc(all.Items, func(e corev1.Event) bool { return !s.Match(&e) })
	for i := range all.Items {
		all.Items[i].APIVersion, all.Items[i].Kind = "v1", "Event"
	}
	slices.SortStableFunc(all.Items, func(a, b corev1.Event) int {
		return cmp.Or(When(&a).Compare(When(&b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time))
	})
	return all, nil
}

// retry is the pause before a watch is opened again.
const retry = time.Second

// Watch gives each selected event after version as it comes, until ctx ends, show fails or the server refuses. A watch
// that ends is opened again where it was, also after the API server was away; where the server has forgotten that, what
// is there now is not printed again.
func Watch(ctx context.Context, c *client.Client, s Selection, version string, show func(*corev1.Event) error) error {
	w := &watcher{client: c, selection: s, version: version, show: show, outage: outage.Follow(ctx)}
	defer w.outage.End()
	for {
		err := w.watch(ctx)
		if apierrors.IsGone(err) || apierrors.IsResourceExpired(err) {
			var now *corev1.EventList
			if now, err = List(ctx, c, s); err == nil {
				w.version = now.ResourceVersion
			}
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case w.failed != nil:
			return w.failed
		case client.Refused(err):
			return err
		}
		w.outage.Lost(ctx, err)
		if err := action.Sleep(ctx, retry); err != nil {
			return err
		}
	}
}

type watcher struct {
	client    *client.Client
	selection Selection
	// version is that of the last event that came.
	version string
	show    func(*corev1.Event) error
	// failed is what another watch would not fix.
	failed error
	outage *outage.Follower
}

// watch follows one watch to its end. Its error is the server's, nil when the connection ended.
func (w *watcher) watch(ctx context.Context) error {
	body, err := w.client.Stream(ctx, path(w.selection.Namespace), url.Values{
		"watch": {"true"}, "resourceVersion": {w.version}, "allowWatchBookmarks": {"true"},
	})
	if err != nil {
		return fmt.Errorf("watch events: %w", err)
	}
	w.outage.Answered()
	defer body.Close()
	for decoder := json.NewDecoder(body); ; {
		var change struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if decoder.Decode(&change) != nil {
			return nil // the connection ended
		}
		if change.Type == "ERROR" {
			var status metav1.Status
			if err := json.Unmarshal(change.Object, &status); err != nil {
				w.failed = fmt.Errorf("watch events: %w", err)
				return nil
			}
			return &apierrors.StatusError{ErrStatus: status}
		}
		if err := w.event(ctx, change.Type, change.Object); err != nil || w.failed != nil {
			return err
		}
	}
}

// event shows one that came if it is selected.
func (w *watcher) event(ctx context.Context, change string, object json.RawMessage) error {
	event := &corev1.Event{}
	if err := json.Unmarshal(object, event); err != nil {
		w.failed = fmt.Errorf("watch events: %w", err)
		return nil
	}
	involved := event.InvolvedObject
	if _, known := w.selection.moves[involved.Name]; !known && involved.Kind == migration {
		if err := w.selection.learn(ctx, w.client); err != nil {
			return err // the event comes again
		}
	}
	w.version = event.ResourceVersion
	if (change == "ADDED" || change == "MODIFIED") && w.selection.Match(event) {
		event.APIVersion, event.Kind = "v1", "Event"
		w.failed = w.show(event)
	}
	return nil
}

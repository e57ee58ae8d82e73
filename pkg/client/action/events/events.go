// Package events selects the events that are about virtual machines: about the VM, its instance, its migrations and its
// launcher's pods.
package events

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
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

// kinds whose events are told, by involvedObject.kind.
var kinds = []string{
	"VirtualMachine", "VirtualMachineInstance", migration, "VirtualMachineInstanceReplicaSet",
	"VirtualMachinePool", "KubeVirt",
}

const migration = "VirtualMachineInstanceMigration"

// launcherPrefix begins the name of a launcher's pod, hotplugPrefix that of a pod that holds hotplugged volumes.
const (
	launcherPrefix = names.VirtLauncher + "-"
	hotplugPrefix  = "hp-volume-"
)

// Match reports whether an event is selected.
func (s Selection) Match(e *corev1.Event) bool {
	if len(s.Types) > 0 && !slices.ContainsFunc(s.Types, func(t string) bool { return strings.EqualFold(t, e.Type) }) {
		return false
	}
	return len(s.Names) == 0 && s.of(e, "") ||
		slices.ContainsFunc(s.Names, func(name string) bool { return s.of(e, name) })
}

// of reports whether an event is about a VM.
func (s Selection) of(e *corev1.Event, vm string) bool {
	return Of(e.InvolvedObject.Kind, e.InvolvedObject.Name, vm, s.moves)
}

// Without are the names of which no event is in list, which List made.
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
// migration that is known, by their names; others are told by how they are called. With "" for the VM the object may be
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

// When is when an event was seen last.
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

// Count is how often it was seen.
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

// Watch gives each selected event after version as it comes, until ctx ends or show fails. A watch that ends is opened
// again where it was; where the server has forgotten that, what is there now is not told again.
func Watch(ctx context.Context, c *client.Client, s Selection, version string, show func(*corev1.Event) error) error {
	for {
		next, err := watch(ctx, c, s, version, show)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case apierrors.IsGone(err) || apierrors.IsResourceExpired(err):
			now, err := List(ctx, c, s)
			if err != nil {
				return err
			}
			next = now.ResourceVersion
		case err != nil:
			return err
		}
		version = next
		timer := time.NewTimer(retry)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}

func watch(
	ctx context.Context, c *client.Client, s Selection, version string, show func(*corev1.Event) error,
) (string, error) {
	body, err := c.Stream(ctx, path(s.Namespace), url.Values{
		"watch": {"true"}, "resourceVersion": {version}, "allowWatchBookmarks": {"true"},
	})
	if err != nil {
		return version, fmt.Errorf("watch events: %w", err)
	}
	defer body.Close()
	for decoder := json.NewDecoder(body); ; {
		var change struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if err := decoder.Decode(&change); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return version, nil
			}
			return version, nil // the connection broke
		}
		if change.Type == "ERROR" {
			var status metav1.Status
			if err := json.Unmarshal(change.Object, &status); err != nil {
				return version, fmt.Errorf("watch events: %w", err)
			}
			return version, &apierrors.StatusError{ErrStatus: status}
		}
		event := &corev1.Event{}
		if err := json.Unmarshal(change.Object, event); err != nil {
			return version, fmt.Errorf("watch events: %w", err)
		}
		version = event.ResourceVersion
		if _, known := s.moves[event.InvolvedObject.Name]; !known && event.InvolvedObject.Kind == migration {
			if err := s.learn(ctx, c); err != nil {
				return version, err
			}
		}
		if (change.Type == "ADDED" || change.Type == "MODIFIED") && s.Match(event) {
			event.APIVersion, event.Kind = "v1", "Event"
			if err := show(event); err != nil {
				return version, err
			}
		}
	}
}

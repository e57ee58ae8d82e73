package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// follow says on standard error, with -v, when what of a migration was to be seen, until stop is called.
func (g *guest) follow(ctx context.Context) (stop func(), _ error) {
	if !g.verbose {
		return func() {}, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	start := time.Now()
	var mu sync.Mutex
	seen := map[string]bool{}
	for _, list := range []client.ObjectList{
		&v1.VirtualMachineInstanceMigrationList{},
		&v1.VirtualMachineInstanceList{}, &corev1.PodList{},
	} {
		w, err := g.Client.Watch(ctx, list, client.InNamespace(g.vmi.Namespace))
		if err != nil {
			cancel()
			return nil, err
		}
		following.Go(func() {
			<-ctx.Done()
			w.Stop()
		})
		following.Go(func() {
			for e := range w.ResultChan() {
				mu.Lock()
				if s := g.stage(e.Object); s != "" && !seen[s] {
					seen[s] = true
					if since := time.Since(start); since > 20*time.Millisecond { // else it was so before
						fmt.Fprintf(os.Stderr, "    %5d ms  %s\n", since.Milliseconds(), s)
					}
				}
				mu.Unlock()
			}
		})
	}
	return func() {
		cancel()
		following.Wait()
	}, nil
}

// stage is how far an object of the latest migration is; empty for others.
func (g *guest) stage(object any) string {
	var s []string
	say := func(when bool, what string) {
		if when {
			s = append(s, what)
		}
	}
	name := fmt.Sprintf("%s-%d", g.vmi.Name, g.moves)
	switch o := object.(type) {
	case *v1.VirtualMachineInstanceMigration:
		if o.Name != name {
			return ""
		}
		s = append(s, "migration", string(o.Status.Phase))
	case *v1.VirtualMachineInstance:
		ms := o.Status.MigrationState
		if o.Name != g.vmi.Name || ms == nil {
			return ""
		}
		s = append(s, "vmi", string(ms.MigrationUID))
		say(o.Labels[v1.MigrationTargetNodeNameLabel] == ms.TargetNode, "label")
		say(ms.TargetNodeAddress != "", "targetNodeAddress")
		say(ms.StartTimestamp != nil, "startTimestamp")
		say(ms.Completed, "completed")
		say(o.Labels[v1.NodeNameLabel] == o.Status.NodeName, "on "+o.Status.NodeName)
	case *corev1.Pod:
		if o.Annotations[v1.DomainAnnotation] != g.vmi.Name {
			return ""
		}
		s = append(s, "pod", o.Name, string(o.Status.Phase))
		say(o.Spec.NodeName != "", o.Spec.NodeName)
	}
	return strings.Join(s, " ")
}

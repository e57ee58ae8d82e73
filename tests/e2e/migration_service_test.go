//go:build e2e

package e2e

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// served is a Service of a guest and what was seen of its endpoints.
type served struct {
	g    *guest
	mu   sync.Mutex
	seen []endpoints
}

// endpoints are the names of the pods that are Ready, sorted, since a time; node is where the guest was then.
type endpoints struct {
	pods []string
	node string
	at   time.Time
}

// serve makes a Service of the guest and follows its endpoints until the test ends.
func (g *guest) serve(t *testing.T) *served {
	t.Helper()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: g.ns, Name: g.name},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{v1.CreatedByLabel: string(g.vmi(t).UID)},
			Ports:    []corev1.ServicePort{{Port: 80}},
		},
	}
	if err := g.Client.Create(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	s := &served{g: g}
	ctx, cancel := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() {
		for ctx.Err() == nil {
			s.follow(ctx)
		}
	})
	t.Cleanup(func() { cancel(); following.Wait() })
	s.wait(t, 1)
	return s
}

// follow notes the endpoints until the watch ends.
func (s *served) follow(ctx context.Context) {
	w, err := s.g.Kube.DiscoveryV1().EndpointSlices(s.g.ns).Watch(ctx,
		metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + s.g.name})
	if err != nil {
		return
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		slice, ok := event.Object.(*discoveryv1.EndpointSlice)
		if !ok {
			continue
		}
		now := endpoints{at: time.Now()}
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready != nil && *e.Conditions.Ready && e.TargetRef != nil {
				now.pods = append(now.pods, e.TargetRef.Name)
			}
		}
		slices.Sort(now.pods)
		vmi := &v1.VirtualMachineInstance{}
		if err := s.g.Client.Get(ctx, client.ObjectKey{Namespace: s.g.ns, Name: s.g.name}, vmi); err == nil {
			now.node = vmi.Status.NodeName
		}
		s.mu.Lock()
		if n := len(s.seen); n == 0 || !slices.Equal(s.seen[n-1].pods, now.pods) {
			s.seen = append(s.seen, now)
		}
		s.mu.Unlock()
	}
}

func (s *served) last() []endpoints {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

// wait waits until the Service has as many endpoints.
func (s *served) wait(t *testing.T, n int) {
	t.Helper()
	eventually(t, 60*time.Second, "the service has its endpoints", func() string {
		seen := s.last()
		if len(seen) == 0 {
			return "none seen"
		}
		if now := seen[len(seen)-1]; len(now.pods) != n {
			return "has " + strings.Join(now.pods, ", ")
		}
		return ""
	})
}

// moved checks what the endpoints were while the guest moved from one pod to the other, and begins anew.
func (s *served) moved(t *testing.T, from, to, node string) {
	t.Helper()
	eventually(t, 60*time.Second, "the service leads to pod "+to+" alone", func() string {
		seen := s.last()
		if now := seen[len(seen)-1]; !slices.Equal(now.pods, []string{to}) {
			return "leads to " + strings.Join(now.pods, ", ")
		}
		return ""
	})
	seen := s.last()
	s.mu.Lock()
	s.seen = s.seen[len(s.seen)-1:]
	s.mu.Unlock()
	var none, both time.Duration
	for i, now := range seen[:len(seen)-1] {
		span := seen[i+1].at.Sub(now.at)
		switch len(now.pods) {
		case 0:
			none += span
		case 2:
			both += span
		}
		if slices.Contains(now.pods, to) && now.node != node {
			t.Errorf("the service led to pod %s while the guest was on %s", to, now.node)
		}
		if i == 0 && !slices.Equal(now.pods, []string{from}) {
			t.Errorf("the service led to %v before the guest moved, not to %s", now.pods, from)
		}
	}
	t.Logf("the service's way from %s to %s: %s without endpoints, %s with both", from, to, none, both)
	if none > 15*time.Second || both > 15*time.Second {
		t.Errorf("the service had no endpoints for %s, and both for %s", none, both)
	}
}

// paused checks that a paused guest gets no traffic, and one that goes on does again.
func (s *served) paused(t *testing.T) {
	t.Helper()
	path := "/apis/subresources.kubevirt.io/v1/namespaces/" + s.g.ns + "/virtualmachineinstances/" + s.g.name
	for _, step := range []struct {
		verb string
		left int
	}{{"pause", 0}, {"unpause", 1}} {
		if err := s.g.Kube.CoreV1().RESTClient().Put().AbsPath(path,
			step.verb).Body([]byte(`{}`)).Do(t.Context()).Error(); err != nil {
			t.Fatalf("%s: %v", step.verb, err)
		}
		s.wait(t, step.left)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = s.seen[len(s.seen)-1:]
}

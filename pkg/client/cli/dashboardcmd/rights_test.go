package dashboardcmd

import (
	"context"
	"encoding/json"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// granted makes rights that are not asked for again.
func granted(of map[string]*authorizationv1.SubjectRulesReviewStatus) map[string]*rights {
	out := map[string]*rights{}
	for namespace, status := range of {
		out[namespace] = &rights{status: status, asked: time.Now().Add(time.Hour)}
	}
	return out
}

// TestRightsIntoGuests asks for the rights of the group that has consoles and screens.
func TestRightsIntoGuests(t *testing.T) {
	t.Parallel()
	a := &actions{factory: &cli.Factory{Now: time.Now}}
	a.rules = granted(map[string]*authorizationv1.SubjectRulesReviewStatus{
		"prod": {ResourceRules: []authorizationv1.ResourceRule{{
			Verbs: []string{"get"}, APIGroups: []string{v1.SubresourceStorageGroupVersion.Group},
			Resources: []string{client.VMIs + "/console"},
		}}},
	})
	if why := a.ForbiddenTo("prod", "get", client.VMIs+"/console"); why != "" {
		t.Error(why)
	}
	// One that is for some names is the server's to refuse, as is a subresource of all.
	a.rules = granted(map[string]*authorizationv1.SubjectRulesReviewStatus{
		"prod": {ResourceRules: []authorizationv1.ResourceRule{{
			Verbs: []string{"get"}, APIGroups: []string{v1.SubresourceStorageGroupVersion.Group},
			Resources: []string{client.VMIs + "/console", "*/portforward"}, ResourceNames: []string{"web"},
		}}},
	})
	for _, sub := range []string{"/console", "/portforward"} {
		if why := a.ForbiddenTo("prod", "get", client.VMIs+sub); why != "" {
			t.Error(why)
		}
	}
	const want = "you may not get virtualmachineinstances/vnc in prod"
	if why := a.ForbiddenTo("prod", "get", client.VMIs+"/vnc"); why != want {
		t.Errorf("%q", why)
	}
}

// TestRightsToNodes: who may not patch nodes reads that of the cluster.
func TestRightsToNodes(t *testing.T) {
	t.Parallel()
	a := &actions{factory: &cli.Factory{Now: time.Now}}
	a.rules = granted(map[string]*authorizationv1.SubjectRulesReviewStatus{
		"prod": {},
		"all": {ResourceRules: []authorizationv1.ResourceRule{{
			Verbs: []string{"patch"}, APIGroups: []string{""}, Resources: []string{"nodes"},
		}}},
	})
	for namespace, want := range map[string]string{"prod": "you may not patch nodes of the cluster", "all": ""} {
		if why := a.ForbiddenTo(namespace, "patch", client.Nodes); why != want {
			t.Errorf("%s: %q, not %q", namespace, why, want)
		}
	}
}

// TestRightsArrive grants a right after a key was refused: the server is asked again by a later refusal, not by each,
// and what is allowed is not asked for again.
func TestRightsArrive(t *testing.T) {
	t.Parallel()
	var may atomic.Bool
	api := clienttest.New(t)
	const reviews = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
	api.Put(reviews, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var review authorizationv1.SelfSubjectRulesReview
		if may.Load() {
			review.Status.ResourceRules = []authorizationv1.ResourceRule{{
				Verbs: []string{"update"}, APIGroups: []string{v1.SubresourceStorageGroupVersion.Group},
				Resources: []string{client.VMs + "/start"},
			}}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		if err := json.NewEncoder(w).Encode(&review); err != nil {
			t.Error(err)
		}
	}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	now, changed := time.Now(), make(chan struct{}, 1)
	a := &actions{
		factory: &cli.Factory{Now: func() time.Time { return now }}, client: api.Client(), ctx: ctx,
		changed: func() { changed <- struct{}{} }, rules: map[string]*rights{},
	}
	draws := func(want string, asked int) {
		t.Helper()
		for range 100 {
			if why := a.Forbidden("prod", lifecycle.Start); why != want {
				t.Fatalf("%q, not %q", why, want)
			}
		}
		if got := len(api.Asked(reviews)); got > asked {
			t.Errorf("the server was asked %d times, not %d", got, asked)
		}
	}
	read := func() {
		t.Helper()
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatal("what was read did not arrive")
		}
	}
	const refused = "you may not update virtualmachines/start in prod"
	if why := a.Forbidden("prod", lifecycle.Start); why != "" {
		t.Errorf("%q before it is known", why)
	}
	read()
	draws(refused, 1)
	may.Store(true)
	now = now.Add(refusalLasts - time.Millisecond)
	draws(refused, 1)
	now = now.Add(time.Millisecond)
	if why := a.Forbidden("prod", lifecycle.Start); why != refused {
		t.Errorf("%q while it is read anew", why)
	}
	read()
	draws("", 2)
	now = now.Add(time.Hour)
	draws("", 2)
}

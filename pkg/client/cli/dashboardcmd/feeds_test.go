package dashboardcmd

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/tui/page"
)

// refusing is an API server at which nobody may list anything. It knows who has tried.
type refusing struct {
	mu     sync.Mutex
	listed map[string]bool
	more   chan struct{}
}

func (r *refusing) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	name := filepath.Base(q.URL.Path)
	if q.URL.Query().Get("watch") == "" {
		r.mu.Lock()
		r.listed[name] = true
		r.mu.Unlock()
		select {
		case r.more <- struct{}{}:
		default:
		}
	}
	status := apierrors.NewForbidden(schema.GroupResource{Resource: name}, "", errors.New("nobody may"))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusForbidden)
	_ = json.NewEncoder(w).Encode(status.Status()) // who asks has gone, and sees it
}

// all reports whether each of the resources was listed.
func (r *refusing) all(resources []string) (missing []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range resources {
		if !r.listed[name] {
			missing = append(missing, name)
		}
	}
	return missing
}

// TestFeedsThatAreRefused opens a scope, and all that is followed only where it is looked at, for an account without
// rights. Each feed falls back from a watch to a list, and ends in an error that its page shows.
func TestFeedsThatAreRefused(t *testing.T) {
	t.Parallel()
	api := &refusing{listed: map[string]bool{}, more: make(chan struct{}, 1)}
	server := httptest.NewServer(api)
	defer server.Close()
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: server.URL}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", Namespace: "prod"}
	config.CurrentContext = "test"
	f := cli.NewFactory("virtctl", cli.NoStreams(), func(string) string { return "" })
	f.Flags.Kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, f.Flags.Kubeconfig); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	s, err := newSession(ctx, &Options{Factory: f, Theme: "none"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	w, err := s.open(page.Scope{Context: "test", Namespace: "prod"})
	if err != nil {
		t.Fatal(err)
	}
	var follows []string
	world := reflect.ValueOf(w).Elem()
	for i := range world.NumField() {
		name := world.Type().Field(i).Name
		if strings.HasPrefix(name, "Follow") {
			world.Field(i).Call(nil)
			follows = append(follows, name)
		}
	}
	known := []string{"FollowSizings", "FollowSets", "FollowSnapshots", "FollowImages"}
	if diff := cmp.Diff(known, follows); diff != "" {
		t.Errorf("what is followed where it is looked at: %s", diff)
	}
	resources := []string{
		"events", "nodes", "persistentvolumeclaims", "virtualmachineclones", "virtualmachineclusterinstancetypes",
		"virtualmachineclusterpreferences", "virtualmachineinstancemigrations", "virtualmachineinstancereplicasets",
		"virtualmachineinstances", "virtualmachineinstancetypes", "virtualmachinepools", "virtualmachinepreferences",
		"virtualmachinerestores", "virtualmachines", "virtualmachinesnapshotcontents", "virtualmachinesnapshots",
		"volumesnapshots",
	}
	deadline := time.After(30 * time.Second)
	for missing := resources; len(missing) > 0; {
		select {
		case <-api.more:
		case <-deadline:
			t.Fatalf("never listed: %s", missing)
		}
		missing = api.all(resources)
	}
	for w.Images.State().Err == nil {
		select {
		case <-s.changes:
		case <-deadline:
			t.Fatal("the page of images does not know that it may not list claims")
		}
	}
	if err := w.Images.State().Err; !strings.Contains(w.Explain(err), "persistentvolumeclaims") {
		t.Errorf("the page of images says %q", w.Explain(err))
	}
	cancel()
	s.close()
	api.mu.Lock()
	defer api.mu.Unlock()
	for name := range api.listed {
		if name != "prod" && !slices.Contains(resources, name) {
			t.Errorf("%s are followed, and this test does not know it", name)
		}
	}
}

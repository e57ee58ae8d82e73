// Package clienttest is an API server for the tests of what reads from one: it answers each path with the object, or
// the function, that a test has put there, as a real one would, and remembers what it was asked.
package clienttest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/virtkit/virtkit/pkg/client/action/client"
)

// API answers requests. Put fills it; it is safe for use by several goroutines.
type API struct {
	t      *testing.T
	server *httptest.Server

	mu      sync.Mutex
	objects map[string]any
	asked   []*http.Request
}

// New starts one that ends with the test, and knows no object.
func New(t *testing.T) *API {
	t.Helper()
	a := &API{t: t, objects: map[string]any{}}
	a.server = httptest.NewServer(a)
	t.Cleanup(a.server.Close)
	return a
}

// Put sets the answer of a path: an error of the API server's, an http.HandlerFunc, or an object as JSON. A list
// answers as an empty one until it is put.
func (a *API) Put(at string, answer any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.objects[at] = answer
}

// Asked returns the requests so far whose path ends so, the oldest first.
func (a *API) Asked(suffix string) []*http.Request {
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []*http.Request
	for _, r := range a.asked {
		if strings.HasSuffix(r.URL.Path, suffix) {
			out = append(out, r)
		}
	}
	return out
}

// Client returns a new client of the API.
func (a *API) Client() *client.Client {
	a.t.Helper()
	c, err := client.New(&rest.Config{Host: a.server.URL, QPS: -1})
	if err != nil {
		a.t.Fatal(err)
	}
	return c
}

// Kubeconfig returns the path of a kubeconfig for it, whose context has a namespace.
func (a *API) Kubeconfig(namespace string) string {
	a.t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: a.server.URL}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", Namespace: namespace}
	config.CurrentContext = "test"
	file := filepath.Join(a.t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		a.t.Fatal(err)
	}
	return file
}

// Forbidden returns the refusal of a resource.
func Forbidden(resource string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", nil)
}

// ServeHTTP answers.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.asked = append(a.asked, r)
	answer, known := a.objects[r.URL.Path]
	a.mu.Unlock()
	switch answer := answer.(type) {
	case http.HandlerFunc:
		answer(w, r)
	case apierrors.APIStatus:
		a.refuse(w, answer)
	default:
		if known {
			a.write(w, http.StatusOK, answer)
			return
		}
		if isList(r.URL.Path) {
			a.write(w, http.StatusOK, map[string]any{"items": []any{}})
			return
		}
		resource, name := path.Base(path.Dir(r.URL.Path)), path.Base(r.URL.Path)
		a.refuse(w, apierrors.NewNotFound(schema.GroupResource{Resource: resource}, name))
	}
}

// isList reports whether a path is of all objects of a resource.
func isList(at string) bool {
	words := strings.Split(strings.Trim(at, "/"), "/")
	group := 2 // api/v1
	if words[0] == "apis" {
		group = 3
	}
	words = words[min(group, len(words)):]
	if len(words) > 1 && words[0] == "namespaces" {
		words = words[2:]
	}
	return len(words) == 1
}

func (a *API) refuse(w http.ResponseWriter, err apierrors.APIStatus) {
	status := err.Status()
	status.Kind, status.APIVersion = "Status", "v1"
	a.write(w, int(status.Code), status)
}

func (a *API) write(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(object); err != nil {
		a.t.Error(err)
	}
}

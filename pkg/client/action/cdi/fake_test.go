package cdi

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// world is an API server with CDI, and CDI's upload proxy.
type world struct {
	t     *testing.T
	proxy *httptest.Server

	mu sync.Mutex
	// objects are what is there, by its path.
	objects map[string]map[string]any
	// made and changed are what was written, in order: the path, and the object or patch.
	made, changed []string
	// refuse is the API server's error of a write to a path.
	refuse map[string]error
	tokens int

	// answer answers what the proxy is sent; nil takes it. It is given the number of the request, from 1 on.
	answer func(n int, w http.ResponseWriter, r *http.Request) bool
	// async says that the proxy has the newer path.
	async bool
	asked []string
	got   string
	// settle is what CDI does when it has the image, and looked what it does before it is looked at; nil is nothing.
	settle, looked func()
	// written returns the API server's error of the n-th change, from 0 on; nil is none.
	written func(n int) error
}

const (
	claimPath  = "/api/v1/namespaces/ns/persistentvolumeclaims/disk"
	volumePath = "/apis/cdi.kubevirt.io/v1beta1/namespaces/ns/datavolumes/disk"
	configPath = "/apis/cdi.kubevirt.io/v1beta1/cdiconfigs/config"
	sourcePath = "/apis/cdi.kubevirt.io/v1beta1/namespaces/ns/datasources/disk"
)

// newWorld has a proxy whose certificate is of an authority that CDI names, and whose address CDI says. What is made is
// ready at once, and what is sent is written at once.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, objects: map[string]map[string]any{}, refuse: map[string]error{}, async: true}
	w.proxy = httptest.NewTLSServer(http.HandlerFunc(w.serve))
	t.Cleanup(w.proxy.Close)
	authority := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.proxy.Certificate().Raw}))
	w.objects[configPath] = map[string]any{
		"status": map[string]any{"uploadProxyURL": w.proxy.URL, "uploadProxyCA": authority},
	}
	w.settle = func() { w.annotate(annotationPodPhase, succeeded) }
	return w
}

func (w *world) Read(_ context.Context, path string, _ url.Values, into any) error {
	if w.looked != nil {
		w.looked()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.refuse["GET "+path]; err != nil {
		return err
	}
	object := w.objects[path]
	if object == nil && strings.HasSuffix(path, "s") { // a list
		object = map[string]any{}
	}
	if object == nil {
		return apierrors.NewNotFound(schema.GroupResource{}, path)
	}
	data, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

func (w *world) CreateObject(
	_ context.Context, group, namespace, resource string, object *unstructured.Unstructured, _ bool,
) (*unstructured.Unstructured, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := group + "/namespaces/" + namespace + "/" + resource
	if err := w.refuse["POST "+at]; err != nil {
		return nil, err
	}
	if resource == Tokens {
		w.tokens++
		name, _, err := unstructured.NestedString(object.Object, "spec", "pvcName")
		if err != nil || name != "disk" {
			w.t.Errorf("a token for %q, %v", name, err)
		}
		out := object.DeepCopy()
		return out, unstructured.SetNestedField(out.Object, "token-"+string(rune('0'+w.tokens)), "status", "token")
	}
	w.note(&w.made, at, object.Object)
	// CDI is at once.
	if resource == DataVolumes {
		object.Object["status"] = map[string]any{"phase": "UploadReady"}
	} else if resource != DataSources {
		object.Object["metadata"].(map[string]any)["annotations"].(map[string]any)[annotationPodReady] = "true"
	}
	w.objects[at+"/"+object.GetName()] = object.Object
	if resource == DataVolumes {
		w.objects[claimPath] = map[string]any{"metadata": map[string]any{"annotations": map[string]any{}}}
	}
	return object, nil
}

func (w *world) MergeObject(
	_ context.Context, group, namespace, resource, name, _ string, patch []byte, _ bool,
) (*unstructured.Unstructured, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var what map[string]any
	if err := json.Unmarshal(patch, &what); err != nil {
		return nil, err
	}
	at := group + "/namespaces/" + namespace + "/" + resource + "/" + name
	if w.written != nil {
		if err := w.written(len(w.changed)); err != nil {
			w.changed = append(w.changed, "refused")
			return nil, err
		}
	}
	w.note(&w.changed, at, what)
	return &unstructured.Unstructured{}, nil
}

func (w *world) note(in *[]string, at string, what any) {
	data, err := json.Marshal(what)
	if err != nil {
		w.t.Error(err)
	}
	*in = append(*in, at+" "+string(data))
}

// annotate gives the claim an annotation.
func (w *world) annotate(key, value string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	claim := w.objects[claimPath]
	if claim == nil {
		claim = map[string]any{"metadata": map[string]any{"annotations": map[string]any{}}}
		w.objects[claimPath] = claim
	}
	claim["metadata"].(map[string]any)["annotations"].(map[string]any)[key] = value
}

// serve is the upload proxy.
func (w *world) serve(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	w.asked = append(w.asked, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization"))
	n, answer, async := len(w.asked), w.answer, w.async
	w.mu.Unlock()
	if answer != nil && answer(n, rw, r) {
		return
	}
	switch {
	case r.URL.Path != pathSync && (r.URL.Path != pathAsync || !async):
		rw.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodPost:
		data, err := io.ReadAll(r.Body)
		if err != nil || int64(len(data)) != r.ContentLength {
			rw.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.mu.Lock()
		w.got = string(data)
		w.mu.Unlock()
		w.settle()
	}
}

package virtapi

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emicklei/go-restful/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/certs"
	"github.com/virtkit/virtkit/pkg/stream"
)

// cluster is an API server with a few objects, a virt-handler, and virt-api's routes in front of them.
type cluster struct {
	t    testing.TB
	url  string // of virt-api
	core *fake.Clientset
	q    *requests

	mu        sync.Mutex
	objects   map[string]any // by path below the namespace: "virtualmachines/vm"
	writes    []string       // "PATCH virtualmachines/vm {…}"
	conflicts int            // how many patches to refuse
	reads     int
	node      http.HandlerFunc
}

const testNode = "node1"

// newCluster starts it; objects are by "virtualmachines/vm".
func newCluster(t testing.TB, objects map[string]any, node http.HandlerFunc) *cluster {
	t.Helper()
	c := &cluster{t: t, objects: objects, node: node}
	api := httptest.NewServer(http.HandlerFunc(c.serveAPI))
	t.Cleanup(api.Close)

	handlerCert, apiCert := issue(t)
	handler := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.node(w, r)
	}))
	handler.TLS = source(t, handlerCert).ServerConfig(names.CommonNameAPI)
	handler.StartTLS()
	t.Cleanup(handler.Close)
	host, port, err := net.SplitHostPort(handler.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}

	c.core = fake.NewClientset(
		handlerPod("old", testNode, "127.0.0.99", corev1.PodFailed),
		handlerPod("new", testNode, host, corev1.PodRunning),
		handlerPod("pending", "node2", "", corev1.PodPending))
	machines, err := newMachines(&rest.Config{Host: api.URL, QPS: -1}, c.core)
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := newNodes(c.core, names.Namespace)
	if err != nil {
		t.Fatal(err)
	}
	nodes.port, err = strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var informer sync.WaitGroup
	informer.Go(func() { nodes.informer.RunWithContext(ctx) })
	t.Cleanup(func() { cancel(); informer.Wait() })
	<-nodes.informer.HasSyncedChecker().Done()

	c.q = newRequests(machines, nodes, source(t, apiCert).HandlerConfig, func() (string, error) {
		return "v1.37.1", nil
	})
	c.q.guestfsImage = "example.com/libguestfs-tools:v1"
	t.Cleanup(c.q.handlers.closeIdle)
	t.Cleanup(func() { c.q.streams.drain(0) })
	container := restful.NewContainer()
	for _, gv := range groupVersions {
		container.Add(c.q.webService(gv))
	}
	front := httptest.NewServer(container)
	t.Cleanup(front.Close)
	c.url = front.URL
	return c
}

func handlerPod(name, node, ip string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: names.Namespace, Name: name, Labels: map[string]string{names.LabelComponent: names.VirtHandler},
		},
		Spec:   corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Phase: phase, PodIP: ip},
	}
}

// issue makes the Secrets of virt-handler and virt-api.
func issue(t testing.TB) (handler, api *corev1.Secret) {
	t.Helper()
	now := time.Now()
	authority, err := certs.NewAuthority(now, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	secret := func(name, commonName, dnsName string) *corev1.Secret {
		leaf, err := authority.Issue(certs.Leaf{CommonName: commonName, DNSNames: []string{dnsName}}, now, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		key, err := leaf.KeyPEM()
		if err != nil {
			t.Fatal(err)
		}
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: names.Namespace, Name: name},
			Data: map[string][]byte{
				corev1.TLSCertKey: leaf.CertificatePEM(), corev1.TLSPrivateKeyKey: key,
				certs.CABundleKey: authority.CertificatePEM(),
			},
		}
	}
	return secret("handler", names.HandlerOf(testNode), names.DNSNameHandler),
		secret(names.APICertSecret, names.CommonNameAPI, names.DNSNameAPI)
}

// source follows a Secret that does not change.
func source(t testing.TB, secret *corev1.Secret) *certs.Source {
	t.Helper()
	s := certs.NewSource(fake.NewClientset(secret), secret.Namespace, secret.Name)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	<-s.Ready()
	return s
}

func (c *cluster) serveAPI(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, path, _ := strings.Cut(r.URL.Path, "/namespaces/default/")
	resource, name, _ := strings.Cut(path, "/")
	bare := strings.TrimSuffix(path, "/status")
	refuse := func(err *apierrors.StatusError) { stream.WriteStatus(w, err.ErrStatus) }
	object, ok := c.objects[bare]
	if !ok {
		refuse(apierrors.NewNotFound(schema.GroupResource{Group: "kubevirt.io", Resource: resource}, name))
		return
	}
	if r.Method == http.MethodPatch {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			c.t.Error(err)
		}
		if c.conflicts > 0 {
			c.conflicts--
			refuse(apierrors.NewConflict(schema.GroupResource{Group: "kubevirt.io", Resource: resource}, name, nil))
			return
		}
		write := "PATCH " + path + " " + string(body)
		if run := r.URL.Query().Get("dryRun"); run != "" {
			write += " dryRun=" + run
		}
		c.writes = append(c.writes, write)
	}
	if r.Method == http.MethodGet {
		c.reads++
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	if err := json.NewEncoder(w).Encode(object); err != nil {
		c.t.Error(err)
	}
}

func (c *cluster) written() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.writes...)
}

// do makes a request to a subresource and gives code and body.
func (c *cluster) do(method, path, body string) (int, string) {
	c.t.Helper()
	if !strings.HasPrefix(path, "/") {
		path = "/apis/subresources.kubevirt.io/v1/namespaces/default/" + path
	}
	r, err := http.NewRequest(method, c.url+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer response.Body.Close()
	out, err := io.ReadAll(response.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return response.StatusCode, string(out)
}

// dial opens a stream as a client does.
func (c *cluster) dial(path string, query url.Values) (*stream.Conn, error) {
	c.t.Helper()
	return c.dialWith(path, query, stream.Options{})
}

func (c *cluster) dialWith(path string, query url.Values, opts stream.Options) (*stream.Conn, error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := stream.Dial(ctx, &rest.Config{Host: c.url},
		"/apis/subresources.kubevirt.io/v1/namespaces/default/"+path, query, opts)
	if err == nil {
		c.t.Cleanup(func() { conn.Close() })
	}
	return conn, err
}

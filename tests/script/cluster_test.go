package script

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sort"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/vm/exports"
	"github.com/virtkit/virtkit/tests/sshd"
)

// Tokens by which a request says who it is.
const (
	tokenAdmin   = "admin"
	tokenViewer  = "viewer"
	tokenExpired = "expired"
)

const (
	resourceVMs        = "virtualmachines"
	resourceVMIs       = "virtualmachineinstances"
	resourceMigrations = "virtualmachineinstancemigrations"
	resourceKubeVirts  = "kubevirts"
	resourceEvents     = "events"
	resourcePods       = "pods"
	resourcePolicies   = "networkpolicies"
)

// cluster is an API server that knows virtual machines, their subresources and consoles. Starting and stopping
// happens at once, through the same phases as in a real one. A machine named "stuck" never starts; one named "going",
// which is on its way down, is gone after a stop that is refused for that.
type cluster struct {
	server *httptest.Server
	bare   *httptest.Server // one where nothing is installed
	work   sync.WaitGroup

	mu       sync.Mutex
	version  int
	objects  map[string]map[string]metav1.Object // by resource, then namespace/name
	watchers map[*watcher]bool
	removals []removal
	changes  []string
	consoles map[string]*guest

	sshd *sshd.Server // of all guests
	// files are those of the guest that virtctl cp reaches.
	files guestFiles
}

func newCluster() *cluster {
	c := &cluster{
		objects: map[string]map[string]metav1.Object{
			resourceVMs:        {},
			resourceVMIs:       {},
			resourceSecrets:    {},
			resourceMigrations: {},
			resourceKubeVirts:  {},
			resourceEvents:     {},
			resourcePods:       {},
			resourcePolicies:   {},
			exports.Resource:   {},
		},
		watchers: map[*watcher]bool{},
		consoles: map[string]*guest{},
	}
	const kubevirt = "/apis/kubevirt.io/v1/"
	const subresources = "/apis/subresources.kubevirt.io/v1/"
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/namespaces", c.namespaces)
	mux.HandleFunc("GET "+kubevirt+"{resource}", c.list)
	mux.HandleFunc("GET "+kubevirt+"namespaces/{ns}/{resource}", c.list)
	mux.HandleFunc("GET "+kubevirt+"namespaces/{ns}/{resource}/{name}", c.get)
	mux.HandleFunc("POST "+kubevirt+"namespaces/{ns}/virtualmachines", c.create)
	mux.HandleFunc("GET "+subresources+"version", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]string{"gitVersion": "v9.9.9", "platform": "linux/amd64"})
	})
	mux.HandleFunc("PUT "+subresources+"namespaces/{ns}/virtualmachines/{name}/{verb}", c.put)
	c.serveLifecycle(mux, kubevirt, subresources)
	c.serveMigrations(mux, kubevirt)
	mux.HandleFunc("GET "+subresources+"namespaces/{ns}/virtualmachineinstances/{name}/console", c.console)
	mux.HandleFunc("GET "+subresources+"namespaces/{ns}/virtualmachineinstances/{name}/vnc", c.vnc)
	mux.HandleFunc("GET "+subresources+"namespaces/{ns}/virtualmachineinstances/{name}/vnc/screenshot", c.screenshot)
	c.servePortForward(mux, subresources)
	c.serveObjects(mux, subresources)
	c.agentRoutes(mux)
	c.serveVolumes(mux, subresources)
	c.serveObserving(mux, subresources)
	c.serveRename(mux)
	c.serveExports(mux)
	c.server = httptest.NewTLSServer(c.authorized(mux))
	c.bare = httptest.NewTLSServer(http.NotFoundHandler())
	return c
}

func (c *cluster) close() {
	c.mu.Lock()
	for _, g := range c.consoles {
		g.powerOff()
	}
	c.mu.Unlock()
	c.server.CloseClientConnections()
	c.server.Close()
	c.bare.Close()
	c.work.Wait()
}

// load takes objects from a YAML file, which may be missing.
func (c *cluster) load(path string) error {
	data, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, document := range strings.Split(string(data), "\n---\n") {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
			return err
		}
		var o metav1.Object = &v1.VirtualMachine{}
		resource := resourceVMs
		switch kind.Kind {
		case "VirtualMachineInstance":
			o, resource = &v1.VirtualMachineInstance{}, resourceVMIs
		case "Secret":
			o, resource = &corev1.Secret{}, resourceSecrets
		case "KubeVirt":
			o, resource = &v1.KubeVirt{}, resourceKubeVirts
		case "Event":
			o, resource = &corev1.Event{}, resourceEvents
		case "Pod":
			o, resource = &corev1.Pod{}, resourcePods
		case "NetworkPolicy":
			o, resource = &networkingv1.NetworkPolicy{}, resourcePolicies
		}
		if err := yaml.UnmarshalStrict([]byte(document), o); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if o.GetNamespace() == "" {
			o.SetNamespace("default")
		}
		c.put1(resource, o)
	}
	return nil
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		panic(err) // ends the request; net/http logs it
	}
}

func refuse(w http.ResponseWriter, err *apierrors.StatusError) { stream.WriteStatus(w, err.ErrStatus) }

func group(resource string) schema.GroupResource {
	return schema.GroupResource{Group: "kubevirt.io", Resource: resource}
}

// authorized knows three users by their tokens, and answers as an API server does.
func (c *cluster) authorized(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ") {
		case tokenAdmin:
		case tokenViewer:
			if strings.HasSuffix(r.URL.Path, "/selfsubjectaccessreviews") {
				fmt.Fprint(w, `{"kind":"SelfSubjectAccessReview","status":{"allowed":false}}`)
				return
			}
			if r.Method != http.MethodGet {
				message := `User "viewer" cannot update resource "virtualmachines/start" in API group "subresources.kubevirt.io" in the namespace "default"`
				status := metav1.Status{
					Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
					Message: `virtualmachines.subresources.kubevirt.io "demo" is forbidden: ` + message,
				}
				stream.WriteStatus(w, status)
				return
			}
		default:
			refuse(w, apierrors.NewUnauthorized("Unauthorized"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (c *cluster) requested() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string{}, c.changes...)
}

func (c *cluster) namespaces(w http.ResponseWriter, _ *http.Request) {
	list := metav1.PartialObjectMetadataList{
		TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"},
	}
	for _, name := range []string{"default", "kubevirt", "shop"} {
		list.Items = append(list.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	answer(w, http.StatusOK, list)
}

func id(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }

// put1 stores o and tells the watchers.
func (c *cluster) put1(resource string, o metav1.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, known := c.objects[resource][id(o)]
	c.version++
	o.SetResourceVersion(fmt.Sprint(c.version))
	if o.GetUID() == "" {
		o.SetUID(types.UID(fmt.Sprintf("uid-%d", c.version)))
	}
	c.objects[resource][id(o)] = o
	kind := "MODIFIED"
	if !known {
		kind = "ADDED"
	}
	c.notify(kind, resource, o)
}

func (c *cluster) remove(resource, key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, known := c.objects[resource][key]
	if !known {
		return
	}
	delete(c.objects[resource], key)
	c.version++
	c.removals = append(c.removals, removal{resource: resource, version: c.version, object: o})
	c.notify("DELETED", resource, o)
}

func (c *cluster) list(w http.ResponseWriter, r *http.Request) {
	ns, resource, query := r.PathValue("ns"), r.PathValue("resource"), r.URL.Query()
	byLabel, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		refuse(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	byField, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		refuse(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	match := func(o metav1.Object) bool {
		return (ns == "" || o.GetNamespace() == ns) && byLabel.Matches(labels.Set(o.GetLabels())) &&
			byField.Matches(fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace()})
	}
	if query.Get("watch") == "true" || query.Get("watch") == "1" {
		if query.Get("sendInitialEvents") == "true" { // as older servers say: list first
			refuse(w,
				apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "",
					field.ErrorList{field.Forbidden(field.NewPath("sendInitialEvents"), "not supported here")}))
			return
		}
		c.watch(w, r, resource, match)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	kind := map[string]string{
		resourceVMs:        "VirtualMachineList",
		resourceVMIs:       "VirtualMachineInstanceList",
		resourceMigrations: "VirtualMachineInstanceMigrationList",
		resourceKubeVirts:  "KubeVirtList",
	}[resource]
	items := []metav1.Object{}
	for _, o := range c.objects[resource] {
		if match(o) {
			items = append(items, o)
		}
	}
	sort.Slice(items, func(i, j int) bool { return id(items[i]) < id(items[j]) })
	answer(w, http.StatusOK, map[string]any{
		"apiVersion": "kubevirt.io/v1", "kind": kind, "items": items,
		"metadata": map[string]string{"resourceVersion": fmt.Sprint(c.version)},
	})
}

func (c *cluster) find(resource, ns, name string) metav1.Object {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.objects[resource][ns+"/"+name]
}

func (c *cluster) get(w http.ResponseWriter, r *http.Request) {
	resource, name := r.PathValue("resource"), r.PathValue("name")
	o := c.find(resource, r.PathValue("ns"), name)
	if o == nil {
		refuse(w, apierrors.NewNotFound(group(resource), name))
		return
	}
	answer(w, http.StatusOK, o)
}

func (c *cluster) create(w http.ResponseWriter, r *http.Request) {
	vm := &v1.VirtualMachine{}
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = json.Unmarshal(body, vm)
	}
	if err != nil {
		refuse(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	vm.Namespace = r.PathValue("ns")
	if vm.Name == "rejected" {
		stream.WriteStatus(w, metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
			Message: `admission webhook "virtualmachines.virt-api.kubevirt.io" denied the request: spec.template.spec.volumes[0].name: must match a disk`,
		})
		return
	}
	if c.find(resourceVMs, vm.Namespace, vm.Name) != nil {
		refuse(w, apierrors.NewAlreadyExists(group(resourceVMs), vm.Name))
		return
	}
	c.note(r, nil)
	if r.URL.Query().Get("dryRun") == "" {
		vm.Status.PrintableStatus = v1.VirtualMachineStatusStopped
		c.put1(resourceVMs, vm)
	}
	answer(w, http.StatusCreated, vm)
}

// note keeps a request for the script to see.
func (c *cluster) note(r *http.Request, body []byte) {
	line := r.Method + " " + r.URL.Path
	if dry := r.URL.Query().Get("dryRun"); dry != "" {
		line += "?dryRun=" + dry
	}
	if len(body) > 0 {
		line += " " + string(body)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes = append(c.changes, line)
}

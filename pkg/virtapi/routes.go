package virtapi

import (
	"net/http"
	"strings"

	"github.com/emicklei/go-restful/v3"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapiserver "k8s.io/apiserver/pkg/server"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/stream/copyfile"
	"github.com/virtkit/virtkit/pkg/stream/exec"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// groupVersions are served alike; the first is preferred.
var groupVersions = v1.SubresourceGroupVersions

// action answers a PUT on one object with 202 or an error.
type action func(r *restful.Request, namespace, name string) error

// endpoint is one path of the group.
type endpoint struct {
	method string
	// resource and subresource are as in discovery and RBAC; without subresource the path has no object. Parameters
	// of the path may follow the subresource, as in "portforward/{port}".
	resource, subresource string
	namespaced            bool
	// kind is the group's kind in discovery: that of the resource which the path belongs to.
	kind string
	// body is a value of the type that a request carries, for OpenAPI; nil for none.
	body  any
	serve func(*restful.Request, *restful.Response) error
	doc   string
	// verbs are the RBAC verbs that discovery announces.
	verbs []string
}

// endpoints returns everything that is served below /apis/subresources.kubevirt.io/VERSION.
func (q *requests) endpoints() []endpoint {
	vm, vmi := v1.VirtualMachineGroupVersionKind.Kind, v1.VirtualMachineInstanceGroupVersionKind.Kind
	get, update := []string{"get"}, []string{"update"}
	onMachine := func(verb, doc string, body any, do action) endpoint {
		return endpoint{http.MethodPut, virtualMachines, verb, true, vm, body, accepted(do), doc, update}
	}
	onInstance := func(verb, doc string, body any, do action) endpoint {
		return endpoint{http.MethodPut, virtualMachineInstances, verb, true, vmi, body, accepted(do), doc, update}
	}
	streamOf := func(verb, doc string, check func(*v1.VirtualMachineInstance) error) endpoint {
		return endpoint{http.MethodGet, virtualMachineInstances, verb, true, vmi, nil, q.stream(verb, check), doc, get}
	}
	return []endpoint{
		onMachine("start", "start a VirtualMachine", v1.StartOptions{}, q.start),
		onMachine("stop", "stop a VirtualMachine", v1.StopOptions{}, q.stop),
		onMachine("restart", "restart a VirtualMachine", v1.RestartOptions{}, q.restart),
		onMachine("migrate", "move the guest of a VirtualMachine to another node", v1.MigrateOptions{}, q.migrate),
		{
			http.MethodGet, virtualMachines, "expand-spec", true, vm, nil, q.expand,
			"get a VirtualMachine with what it refers to written out", get,
		},
		{
			http.MethodGet, virtualMachines, "objectgraph", true, vm, nil, q.objectGraph(virtualMachines),
			"get the objects that a VirtualMachine depends on", get,
		},
		{
			http.MethodGet, virtualMachineInstances, "objectgraph", true, vmi, nil,
			q.objectGraph(virtualMachineInstances),
			"get the objects that a VirtualMachineInstance depends on", get,
		},
		streamOf("console", "open a websocket to the serial console of a VirtualMachineInstance", hasSerialConsole),
		streamOf("vnc", "open a websocket to the VNC server of a VirtualMachineInstance", hasGraphics),
		streamOf("usbredir", "open a websocket to a USB port of a VirtualMachineInstance", takesUSB),
		streamOf("vsock", "open a websocket to a vsock port of a VirtualMachineInstance: ?port=PORT[&tls=false]",
			hasVSOCK),
		{
			http.MethodGet, virtualMachineInstances, "portforward/{port}", true, vmi, nil, q.portForwardInstance,
			"open a websocket to a TCP port of a VirtualMachineInstance", get,
		},
		{
			http.MethodGet, virtualMachineInstances, "portforward/{port}/{protocol}", true, vmi, nil,
			q.portForwardInstance, "open a websocket to a port, tcp or udp, of a VirtualMachineInstance", get,
		},
		{
			http.MethodGet, virtualMachines, "portforward/{port}", true, vm, nil, q.portForwardMachine,
			"open a websocket to a TCP port of a VirtualMachine's instance", get,
		},
		{
			http.MethodGet, virtualMachines, "portforward/{port}/{protocol}", true, vm, nil, q.portForwardMachine,
			"open a websocket to a port, tcp or udp, of a VirtualMachine's instance", get,
		},
		{
			http.MethodGet, virtualMachineInstances, "vnc/screenshot", true, vmi, nil, q.screenshot,
			"get a PNG of the screen of a VirtualMachineInstance", get,
		},
		onInstance("pause", "pause a VirtualMachineInstance", v1.PauseOptions{}, q.steer("pause", mayPause)),
		onInstance("unpause", "unpause a VirtualMachineInstance", v1.UnpauseOptions{}, q.steer("unpause", mayUnpause)),
		onInstance("reset", "reset a VirtualMachineInstance as its reset button would", nil,
			q.steer("reset", mayReset)),
		onInstance("softreboot", "ask the guest of a VirtualMachineInstance to reboot", nil,
			q.steer("softreboot", maySoftReboot)),
		onMachine("evacuate/cancel", "take back that a VirtualMachine is to leave its node", v1.EvacuateCancelOptions{},
			q.evacuateCancel),
		onInstance("evacuate/cancel", "take back that a VirtualMachineInstance is to leave its node",
			v1.EvacuateCancelOptions{}, q.evacuateCancel),
		{
			http.MethodGet, virtualMachineInstances, "guestosinfo", true, vmi, nil, q.agent("guestosinfo"),
			"get what the guest agent of a VirtualMachineInstance knows", get,
		},
		{
			http.MethodGet, virtualMachineInstances, "userlist", true, vmi, nil, q.agent("userlist"),
			"get the users who are logged in to a VirtualMachineInstance", get,
		},
		{
			http.MethodGet, virtualMachineInstances, "filesystemlist", true, vmi, nil, q.agent("filesystemlist"),
			"get the file systems of a VirtualMachineInstance", get,
		},
		{
			http.MethodGet, virtualMachineInstances, "firewall", true, vmi, nil, q.fromNode("firewall", hasGuest),
			"get what the guest of a VirtualMachineInstance may send on its networks, and what was dropped", get,
		},
		{
			http.MethodPut, virtualMachineInstances, "freeze", true, vmi,
			v1.FreezeUnfreezeTimeout{},
			q.freeze,
			"freeze the file systems of a VirtualMachineInstance, or with ?withoutAgent=pause pause it without " +
				"an agent",
			update,
		},
		onInstance("unfreeze", "unfreeze the file systems of a VirtualMachineInstance", nil, q.unfreeze),
		streamOf(copyfile.Subresource, "open a websocket to copy a file to or from a VirtualMachineInstance", mayExec),
		streamOf(exec.Subresource, "open a websocket to run a program in a VirtualMachineInstance", mayExec),
		onMachine("addvolume", "add a volume to a VirtualMachine, and plug it in when it runs", v1.AddVolumeOptions{},
			q.addVolumeToMachine),
		onMachine("removevolume", "remove a hotpluggable volume from a VirtualMachine, and unplug it when it runs",
			v1.RemoveVolumeOptions{}, q.removeVolumeFromMachine),
		onMachine("memorydump", "dump the memory of a VirtualMachine to a claim", v1.VirtualMachineMemoryDumpRequest{},
			q.memoryDump),
		onMachine("removememorydump", "let go of the claim that the memory of a VirtualMachine was dumped to", nil,
			q.removeMemoryDump),
		onInstance("addvolume", "plug a volume into a VirtualMachineInstance", v1.AddVolumeOptions{},
			q.addVolumeToInstance),
		onInstance("removevolume", "unplug a volume from a VirtualMachineInstance", v1.RemoveVolumeOptions{},
			q.removeVolumeFromInstance),
		{
			http.MethodGet, virtualMachineInstances, "log", true, vmi, nil, q.log,
			"get what the guest of a VirtualMachineInstance wrote to its serial port, or QEMU's own log", get,
		},
		{
			http.MethodGet, statistics, "", true, "GuestStatistics", nil, q.stats,
			"get what the guests of a namespace use",
			[]string{"list"},
		},
		{
			http.MethodGet, statistics, "", false, "GuestStatistics", nil, q.stats, "get what all guests use",
			[]string{"list"},
		},
		{
			http.MethodPut, persistentVolumeClaims, uploads.Subresource, true, "PersistentVolumeClaim",
			uploads.Request{},
			accepted(q.requestUpload),
			"ask for the upload of a disk image to a PersistentVolumeClaim, or cancel it",
			[]string{"get", "update"},
		},
		{
			http.MethodGet, persistentVolumeClaims, uploads.Subresource, true, "PersistentVolumeClaim", nil, q.upload,
			"get the state of an upload, or open a websocket for its bytes",
			[]string{"get", "update"},
		},
		{
			http.MethodPut, "expand-vm-spec", "", true, vm,
			v1.VirtualMachine{},
			q.expandBody,
			"write out what a VirtualMachine refers to", update,
		},
		{
			http.MethodGet, "version", "", false, "Info", nil, q.version, "get the version of virtkit",
			[]string{"get", "list"},
		},
		{
			http.MethodGet, "guestfs", "", false, "GuestfsInfo", nil, q.guestfs,
			"get the image that has libguestfs, for `virtctl guestfs`",
			[]string{"get", "list"},
		},
		{
			http.MethodGet, "healthz", "", false, "Health", nil, q.health, "check that virt-api reaches the API server",
			[]string{"get", "list"},
		},
	}
}

// statistics is the one resource that is served for a namespace and for all of them.
const statistics = "stats"

// everywhere reports whether an endpoint repeats a namespaced one for all namespaces.
func (e endpoint) everywhere() bool { return e.resource == statistics && !e.namespaced }

// accepted answers 202 when the action goes through.
func accepted(do action) func(*restful.Request, *restful.Response) error {
	return func(r *restful.Request, w *restful.Response) error {
		if err := do(r, r.PathParameter("namespace"), r.PathParameter("name")); err != nil {
			return err
		}
		w.WriteHeader(http.StatusAccepted)
		return nil
	}
}

func (e endpoint) path() string {
	path := "/"
	if e.namespaced {
		path += "namespaces/{namespace}/"
	}
	path += e.resource
	if e.subresource != "" {
		path += "/{name}/" + e.subresource
	}
	return path
}

// bare returns the subresource without the parameters of its path.
func (e endpoint) bare() string {
	bare, _, _ := strings.Cut(e.subresource, "/{")
	return bare
}

// parameters returns the path's parameters after the subresource.
func (e endpoint) parameters() []string {
	var names []string
	for part := range strings.SplitSeq(e.subresource, "/") {
		if strings.HasPrefix(part, "{") {
			names = append(names, strings.Trim(part, "{}"))
		}
	}
	return names
}

func (e endpoint) name() string {
	if e.subresource == "" {
		return e.resource
	}
	return e.resource + "/" + e.bare()
}

// install adds the group with its discovery, old and aggregated, to the server.
func (q *requests) install(server *genericapiserver.GenericAPIServer) {
	group := metav1.APIGroup{Name: groupVersions[0].Group}
	for i, gv := range groupVersions {
		of := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
		group.Versions = append(group.Versions, of)
		if i == 0 {
			group.PreferredVersion = of
		}
		server.Handler.GoRestfulContainer.Add(q.webService(gv))
		server.AggregatedDiscoveryGroupManager.AddGroupVersion(gv.Group, q.aggregatedDiscovery(gv))
		server.AggregatedDiscoveryGroupManager.SetGroupVersionPriority(
			metav1.GroupVersion{Group: gv.Group, Version: gv.Version}, 1000, 20-i,
		)
	}
	server.DiscoveryGroupManager.AddGroup(group)
	server.Handler.GoRestfulContainer.Add(discovery.NewAPIGroupHandler(codecs, group).WebService())
}

func (q *requests) webService(gv schema.GroupVersion) *restful.WebService {
	ws := (&restful.WebService{}).Path("/apis/" + gv.String()).Doc("API at /apis/" + gv.String()).
		ApiVersion(gv.String())
	discovery.NewAPIVersionHandler(codecs, gv, discovery.APIResourceListerFunc(func() []metav1.APIResource {
		return q.discovery()
	})).AddToWebService(ws)
	for _, e := range q.endpoints() {
		route := ws.Method(e.method).Path(e.path()).
			To(func(r *restful.Request, w *restful.Response) {
				if err := e.serve(r, w); err != nil {
					responsewriters.ErrorNegotiated(plain(err), codecs, gv, w.ResponseWriter, r.Request)
				}
			}).
			Doc(e.doc).Operation(operation(gv, e)).
			Consumes(restful.MIME_JSON, "*/*").Produces(restful.MIME_JSON, "*/*")
		if e.namespaced {
			route.Param(ws.PathParameter("namespace", "object name and auth scope, such as for teams and projects").
				DataType("string"))
		}
		if e.subresource != "" {
			route.Param(ws.PathParameter("name", "name of the "+e.kind).DataType("string"))
		}
		for _, name := range e.parameters() {
			route.Param(ws.PathParameter(name, name+" of the guest").DataType("string"))
		}
		if e.body != nil {
			route.Reads(e.body)
		}
		switch {
		case e.method == http.MethodPut && e.subresource != "":
			route.Returns(http.StatusAccepted, "Accepted", "")
		default:
			route.Returns(http.StatusOK, "OK", "")
		}
		ws.Route(route)
	}
	return ws
}

// operation returns the id of an endpoint in OpenAPI: connectV1VirtualmachinesStart. It begins with one of the verbs
// that the API server machinery knows.
func operation(gv schema.GroupVersion, e endpoint) string {
	id := "connect"
	if e.method == http.MethodGet {
		id = "read"
	}
	id += strings.ToUpper(gv.Version[:1]) + gv.Version[1:]
	path := strings.TrimSuffix(e.resource+"/"+e.subresource, "/")
	for part := range strings.FieldsFuncSeq(path, func(r rune) bool { return strings.ContainsRune("/-{}", r) }) {
		id += strings.ToUpper(part[:1]) + part[1:]
	}
	if e.everywhere() {
		id += "ForAllNamespaces"
	}
	return id
}

// discovery returns the resource list of a version, as KubeVirt's.
func (q *requests) discovery() []metav1.APIResource {
	var out []metav1.APIResource
	known := map[string]bool{}
	for _, e := range q.endpoints() {
		if known[e.name()] {
			continue // the same with other parameters
		}
		known[e.name()] = true
		out = append(out, metav1.APIResource{Name: e.name(), Namespaced: e.namespaced, Kind: e.kind, Verbs: e.verbs})
	}
	return out
}

// aggregatedDiscovery returns the same in the form that clients ask for today, where subresources hang below their
// resource.
func (q *requests) aggregatedDiscovery(gv schema.GroupVersion) apidiscoveryv2.APIVersionDiscovery {
	out := apidiscoveryv2.APIVersionDiscovery{Version: gv.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}
	index, known := map[string]int{}, map[string]bool{}
	for _, e := range q.endpoints() {
		if known[e.name()] {
			continue
		}
		known[e.name()] = true
		kind := &metav1.GroupVersionKind{Group: gv.Group, Version: gv.Version, Kind: e.kind}
		at, ok := index[e.resource]
		if !ok {
			at = len(out.Resources)
			index[e.resource] = at
			scope := apidiscoveryv2.ScopeCluster
			if e.namespaced {
				scope = apidiscoveryv2.ScopeNamespace
			}
			out.Resources = append(out.Resources,
				apidiscoveryv2.APIResourceDiscovery{Resource: e.resource, ResponseKind: kind, Scope: scope})
		}
		if e.subresource == "" {
			out.Resources[at].Verbs = e.verbs
			continue
		}
		out.Resources[at].Subresources = append(out.Resources[at].Subresources,
			apidiscoveryv2.APISubresourceDiscovery{Subresource: e.bare(), ResponseKind: kind, Verbs: e.verbs})
	}
	return out
}

package virtapi

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericfilters "k8s.io/apiserver/pkg/server/filters"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/rest"

	"github.com/virtkit/virtkit/pkg/service/config"
	metricsendpoint "github.com/virtkit/virtkit/pkg/service/metrics/endpoint"
	"github.com/virtkit/virtkit/pkg/stream/copyfile"
	"github.com/virtkit/virtkit/pkg/stream/exec"
	"github.com/virtkit/virtkit/pkg/vm/surface"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

var codecs = newCodecs()

// newCodecs knows what discovery and errors are made of; our own answers are plain JSON.
func newCodecs() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	unversioned := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(scheme, unversioned)
	scheme.AddUnversionedTypes(unversioned,
		&metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	for _, gv := range groupVersions {
		metav1.AddToGroupVersion(scheme, gv)
	}
	return serializer.NewCodecFactory(scheme)
}

// open are the paths that need no authorization. The webhooks need none either, and are answered before it; see
// webhooks. They change nothing, but that the eviction of a launcher pod marks its VMI. Besides what the caller sent
// they say whether the instance type and the preference that a VM names exist and what they set, and which ones the
// labels of a claim name.
var open = []string{"/healthz", "/livez", "/readyz"}

// streaming are the subresources whose requests last: they have no deadline, and do not count among the requests that
// are served at a time.
var streaming = sets.NewString(
	"console", "vnc", "usbredir", "vsock", "portforward", exec.Subresource, copyfile.Subresource, "log",
	uploads.Subresource,
)

// serving holds what newServer needs besides the routes.
type serving struct {
	listener    net.Listener
	certificate dynamiccertificates.CertKeyContentProvider
	// authentication and authorization ask the cluster; audit has its own flags.
	authentication *options.DelegatingAuthenticationOptions
	authorization  *options.DelegatingAuthorizationOptions
	audit          *options.AuditOptions
	// callers are the clients that may call the webhooks; nil means anybody.
	callers *callers
	// metrics answers Prometheus at metricsendpoint.Path, which is authorized as any other path.
	metrics http.Handler
}

// newServer makes the aggregated API server: no storage, no admission plugins of its own, no priority
// and fairness; the API server in front has them.
func newServer(s serving, q *requests, hooks *admission) (*genericapiserver.GenericAPIServer, error) {
	gate := newGate(s.listener, maxStrangers, maxStrangersPerSource)
	calls := newWebhooks(hooks, s.callers, gate.known)
	c := genericapiserver.NewConfig(codecs)
	c.BuildHandlerChainFunc = func(handler http.Handler, c *genericapiserver.Config) http.Handler {
		return calls.before(genericapiserver.DefaultBuildHandlerChain(gate.welcome(handler), c))
	}
	c.SecureServing = &genericapiserver.SecureServingInfo{
		Listener: gate, Cert: s.certificate,
		MinTLSVersion: tls.VersionTLS13,
	}
	c.ExternalAddress = s.listener.Addr().String()
	c.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	c.LoopbackClientConfig = &rest.Config{} // nothing here calls itself
	c.EnableProfiling = false
	c.EnableIndex = false
	c.EnableMetrics = false // ours are there
	c.StorageObjectCountTracker = nil
	c.MaxRequestBodyBytes = maxBody
	c.LongRunningFunc = genericfilters.BasicLongRunningRequestCheck(sets.NewString("watch", "proxy"), streaming)
	definitions(c)

	if err := s.authentication.ApplyTo(&c.Authentication, c.SecureServing, c.OpenAPIConfig); err != nil {
		return nil, fmt.Errorf("set up delegated authentication: %w", err)
	}
	if clients := c.SecureServing.ClientCA; s.callers != nil && clients != nil {
		s.callers.cluster = clients.VerifyOptions
	}
	s.authorization.WithAlwaysAllowPaths(open...)
	if err := s.authorization.ApplyTo(&c.Authorization); err != nil {
		return nil, fmt.Errorf("set up delegated authorization: %w", err)
	}
	if err := s.audit.ApplyTo(c); err != nil {
		return nil, fmt.Errorf("set up audit: %w", err)
	}
	server, err := c.Complete(nil).New("virt-api", genericapiserver.NewEmptyDelegate())
	if err != nil {
		return nil, fmt.Errorf("make the API server: %w", err)
	}
	q.install(server)
	server.Handler.NonGoRestfulMux.Handle(metricsendpoint.Path, s.metrics)
	return server, nil
}

// defaultsOf returns the installation's defaults at the moment, with random firmware UUIDs.
func defaultsOf(current func() config.Config) func() surface.Defaults {
	return func() surface.Defaults {
		c := current()
		return surface.Defaults{
			Architecture:     c.Architecture,
			MachineType:      c.MachineType,
			CPUModel:         c.CPUModel,
			LiveUpdate:       c.LiveUpdate,
			MemoryOvercommit: c.MemoryOvercommit,
			Bridge:           c.Bridge,
			Allowed:          c.Allowed,
			References:       c.ReferencePolicy,
			NewUUID:          func() string { return strings.ToLower(uuid.NewString()) },
		}
	}
}

package exportcontroller

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/virtkit/virtkit/pkg/controller/optional"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/config"
	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/vm/exports"
)

// ingressOf reads the spec of an Ingress, JSON.
func ingressOf(t *testing.T, name, spec string) networkingv1.Ingress {
	t.Helper()
	ingress := networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: names.Namespace, Name: name}}
	if err := json.Unmarshal([]byte(spec), &ingress.Spec); err != nil {
		t.Fatal(err)
	}
	return ingress
}

func routeOf(name, to string, hosts ...string) unstructured.Unstructured {
	route := unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"namespace": names.Namespace, "name": name},
		"spec": map[string]any{
			"to":  map[string]any{"kind": "Service", "name": to},
			"tls": map[string]any{"termination": "reencrypt"},
		},
	}}
	route.SetGroupVersionKind(routes)
	var routers []any
	for _, host := range hosts {
		routers = append(routers, routerSays(host, "True"))
	}
	if err := unstructured.SetNestedSlice(route.Object, routers, "status", "ingress"); err != nil {
		panic(err)
	}
	return route
}

// routerSays is what a router writes into a Route's status.
func routerSays(host, admitted string) map[string]any {
	return map[string]any{"host": host, "routerName": "default", "conditions": []any{
		map[string]any{"type": "Admitted", "status": admitted},
	}}
}

// routeWith returns a Route to virt-exportproxy with another value at a path.
func routeWith(value any, path ...string) unstructured.Unstructured {
	route := routeOf("r", names.VirtExportProxy, "vms.example.com")
	if err := unstructured.SetNestedField(route.Object, value, path...); err != nil {
		panic(err)
	}
	return route
}

const toProxy = `"http":{"paths":[{"path":"/","backend":{"service":{"name":"virt-exportproxy"}}}]}`

func TestHostOfIngress(t *testing.T) {
	for name, tc := range map[string]struct{ spec, host, secret string }{
		"a rule": {
			`{"rules":[{"host":"a.example.com","http":{"paths":[{"backend":{"service":{"name":"x"}}}]}},` +
				`{"host":"vms.example.com",` + toProxy + `}],"tls":[{"hosts":["a.example.com"],"secretName":"a"},` +
				`{"hosts":["vms.example.com"],"secretName":"b"}]}`, "vms.example.com", "b",
		},
		"a certificate for all of a domain": {
			`{"rules":[{"host":"vms.example.com",` + toProxy + `}],` +
				`"tls":[{"hosts":["*.example.com"],"secretName":"b"}]}`,
			"vms.example.com", "b",
		},
		"a certificate for no host in particular": {
			`{"rules":[{"host":"vms.example.com",` + toProxy + `}],"tls":[{"secretName":"b"}]}`, "vms.example.com", "b",
		},
		"a certificate for another host": {
			`{"rules":[{"host":"vms.example.com",` + toProxy + `}],"tls":[{"hosts":["x.org"],"secretName":"b"}]}`,
			"vms.example.com", "",
		},
		"the default for a host without a rule of its own": {
			`{"defaultBackend":{"service":{"name":"virt-exportproxy"}},"rules":[{"host":"vms.example.com"}]}`,
			"vms.example.com", "",
		},
		"the default for a host of the certificate": {
			`{"defaultBackend":{"service":{"name":"virt-exportproxy"}},"tls":[{"hosts":["vms.example.com"],` +
				`"secretName":"b"}]}`, "vms.example.com", "b",
		},
		"the default, but all hosts have rules": {
			`{"defaultBackend":{"service":{"name":"virt-exportproxy"}},"rules":[{"host":"a.org","http":{"paths":[` +
				`{"backend":{"service":{"name":"x"}}}]}}],"tls":[{"hosts":["a.org"]}]}`, "", "",
		},
		"the default of another Service": {
			`{"defaultBackend":{"service":{"name":"x"}},"rules":[{"host":"vms.example.com"}]}`, "", "",
		},
		"a resource":     {`{"rules":[{"host":"a.org","http":{"paths":[{"backend":{"resource":{}}}]}}]}`, "", ""},
		"no host":        {`{"rules":[{` + toProxy + `}]}`, "", ""},
		"any host":       {`{"rules":[{"host":"*.example.com",` + toProxy + `}]}`, "", ""},
		"nothing at all": {`{}`, "", ""},
	} {
		ingress := ingressOf(t, "i", tc.spec)
		host := hostOfIngress(&ingress)
		if host != tc.host || host != "" && secretOf(&ingress, host) != tc.secret {
			t.Errorf("%s: %q %q", name, host, secretOf(&ingress, host))
		}
		ingress.DeletionTimestamp = &metav1.Time{}
		if host := hostOfIngress(&ingress); host != "" {
			t.Errorf("%s, which is being deleted: %s", name, host)
		}
	}
}

func TestHostOfRoute(t *testing.T) {
	for _, tc := range []struct {
		route unstructured.Unstructured
		want  string
	}{
		{routeOf("r", names.VirtExportProxy, "vms.example.com", "b.org"), "vms.example.com"},
		{routeOf("r", names.VirtExportProxy), ""},
		{routeOf("r", "x", "vms.example.com"), ""},
		{routeOf("r", names.VirtExportProxy, "a/b"), ""},
		{unstructured.Unstructured{Object: map[string]any{"spec": "x", "status": 1}}, ""},
		// refused, for the host is another's
		{routeWith([]any{routerSays("vms.example.com", "False")}, "status", "ingress"), ""},
		{routeWith([]any{map[string]any{"host": "vms.example.com"}}, "status", "ingress"), ""},
		{routeWith([]any{map[string]any{"host": "a.org", "conditions": "x"}, int64(1)}, "status", "ingress"), ""},
		{
			routeWith([]any{routerSays("a.org", "False"), routerSays("b.org", "True")}, "status", "ingress"), "b.org",
		},
		{routeWith("", "spec", "to", "kind"), "vms.example.com"},
		{routeWith("Pod", "spec", "to", "kind"), ""},
		{routeWith(nil, "spec", "tls"), ""},
	} {
		if got := hostOfRoute(&tc.route); got != tc.want {
			t.Errorf("%v: %q", tc.route.Object, got)
		}
	}
}

// signed makes a certificate, by itself if by is nil, and returns it with its PEM.
func signed(t *testing.T, name string, until time.Duration, by *authority, hosts ...string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: hosts,
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(until), IsCA: len(hosts) == 0, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	parent, signer := template, key
	if by != nil {
		parent, signer = by.Certificate, by.key
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{c, key, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}))}
}

type authority struct {
	*x509.Certificate
	key *ecdsa.PrivateKey
	pem string
}

// named are the certificates of a bundle, by their names.
func named(t *testing.T, bundle string) string {
	t.Helper()
	var out []string
	for block, rest := pem.Decode([]byte(bundle)); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, c.Subject.CommonName)
	}
	return strings.Join(out, " ")
}

func TestCertificateFor(t *testing.T) {
	const host = "vms.example.com"
	root := signed(t, "root", 3*time.Hour, nil)
	middle := signed(t, "middle", 3*time.Hour, root)
	leaf, long := signed(t, "leaf", time.Hour, middle, host), signed(t, "long", 2*time.Hour, middle, "*.example.com")
	old, other := signed(t, "old", -time.Minute, middle, host), signed(t, "other", time.Hour, root, "b.org")
	key := string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: []byte("secret")}))
	for name, tc := range map[string]struct{ bundle, want string }{
		"its own, with those that signed it": {root.pem + other.pem + middle.pem + leaf.pem, "leaf middle root"},
		"the one that is valid longest":      {leaf.pem + long.pem, "long"},
		"one that is over is none":           {old.pem + root.pem, "root"},
		"all, where none is the host's":      {root.pem + other.pem, "root other"},
		"a key is nobody's business":         {key + leaf.pem, "leaf"},
		"no certificate":                     {"x", ""},
		"one that cannot be read, and one that can": {
			"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n" + leaf.pem, "leaf",
		},
	} {
		got, err := certificateFor(host, []byte(tc.bundle), now)
		if err != nil || named(t, got) != tc.want || strings.Contains(got, "PRIVATE") {
			t.Errorf("%s: %q, %v", name, named(t, got), err)
		}
	}
	// More than a header can have is none; what has not signed the certificate does not count.
	many := strings.Repeat(root.pem, exports.MaxCertificate/len(root.pem)+1)
	got, err := certificateFor(host, []byte(many), now)
	if got != "" || err == nil || !strings.Contains(err.Error(), "more than 40960") {
		t.Errorf("too many: %d bytes, %v", len(got), err)
	}
	if got, err := certificateFor(host, []byte(many+leaf.pem), now); err != nil || named(t, got) != "leaf" {
		t.Errorf("too many others: %q, %v", named(t, got), err)
	}
}

// routeReader lists Routes as an optional.Access does, which has none where the cluster lacks the kind.
type routeReader struct {
	*optional.Access
	items     []unstructured.Unstructured
	unsettled bool
}

func (r routeReader) Settled(context.Context) (bool, error) { return !r.unsettled, nil }

func (r routeReader) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	into.(*unstructured.UnstructuredList).Items = r.items
	return nil
}

// An Ingress goes before a Route; its certificate is that of its Secret, a Route's that of the cluster's routers.
func TestFind(t *testing.T) {
	const host = "vms.example.com"
	leaf, root := signed(t, "leaf", time.Hour, nil, host), signed(t, "root", time.Hour, nil)
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	in := metav1.ObjectMeta{Namespace: names.Namespace}
	named := func(name string) metav1.ObjectMeta { in.Name = name; return in }
	ingress := ingressOf(t, "b", `{"rules":[{"host":"`+host+`",`+toProxy+`}],"tls":[{"secretName":"tls"}]}`)
	later := ingressOf(t, "c", `{"rules":[{"host":"later.example.com",`+toProxy+`}]}`)
	elsewhere := ingressOf(t, "a", `{"rules":[{"host":"elsewhere.example.com",`+toProxy+`}]}`)
	elsewhere.Namespace = "tenant"
	secret := &corev1.Secret{ObjectMeta: named("tls"), Type: corev1.SecretTypeTLS, Data: map[string][]byte{
		"tls.crt": []byte(leaf.pem), "tls.key": []byte("key"), "ca.crt": []byte(root.pem),
	}}
	many := secret.DeepCopy()
	many.Data = map[string][]byte{"tls.crt": []byte(strings.Repeat(root.pem, exports.MaxCertificate/len(root.pem)+1))}
	_, tooLarge := certificateFor(host, many.Data["tls.crt"], now)
	opaque := secret.DeepCopy()
	opaque.Type = corev1.SecretTypeOpaque
	authorities := &corev1.ConfigMap{ObjectMeta: named("kube-root-ca.crt"), Data: map[string]string{"ca.crt": root.pem}}
	for name, tc := range map[string]struct {
		objects []client.Object
		routes  []unstructured.Unstructured
		want    *Entrance
	}{
		"nothing": {[]client.Object{secret, authorities, &elsewhere}, nil, nil},
		"an Ingress": {
			[]client.Object{&later, &ingress, secret},
			nil,
			&Entrance{Host: host, Certificate: strings.TrimSpace(leaf.pem)},
		},
		"a Secret of too many": {
			[]client.Object{&ingress, many}, nil, &Entrance{Host: host, Trouble: tooLarge.Error()},
		},
		"no Secret yet":            {[]client.Object{&ingress}, nil, &Entrance{Host: host}},
		"a Secret of other things": {[]client.Object{&ingress, opaque}, nil, &Entrance{Host: host}},
		"an Ingress and a Route": {
			[]client.Object{&ingress, secret},
			[]unstructured.Unstructured{routeOf("a", names.VirtExportProxy, "r.org")},
			&Entrance{Host: host, Certificate: strings.TrimSpace(leaf.pem)},
		},
		"a Route": {
			[]client.Object{authorities}, []unstructured.Unstructured{
				routeOf("b", names.VirtExportProxy, "b.org"), routeOf("a", names.VirtExportProxy, "a.org"),
			}, &Entrance{Host: "a.org", Certificate: strings.TrimSpace(root.pem)},
		},
	} {
		reader := fakeclient.NewClientBuilder().WithScheme(scheme).WithObjects(tc.objects...).Build()
		ways := &Ways{Client: reader, Live: reader, Routes: routeReader{items: tc.routes}}
		got, err := ways.Find(t.Context(), now)
		if err != nil || (got == nil) != (tc.want == nil) || got != nil && *got != *tc.want {
			t.Errorf("%s: %+v %v", name, got, err)
		}
		host, err := ways.Host(t.Context())
		if err != nil || tc.want == nil && host != "" || tc.want != nil && host != tc.want.Host {
			t.Errorf("%s: host %q %v", name, host, err)
		}
	}
}

// In the moment after virt-controller has begun nobody knows whether a Route leads to exports: the proxy's pods stay.
// An Ingress is known at once.
func TestUnsettled(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	proxy := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: names.Namespace, Name: names.VirtExportProxy},
		Spec:       appsv1.DeploymentSpec{Replicas: new(int32(5))},
	}
	reader := fakeclient.NewClientBuilder().WithScheme(scheme).Build()
	ways := &Ways{Client: reader, Live: reader, Routes: routeReader{unsettled: true}}
	if found, err := ways.Find(t.Context(), now); !errors.Is(err, frame.ErrStale) || found != nil {
		t.Errorf("%+v %v", found, err)
	}
	if _, err := (&Proxy{Entrances: ways}).look(t.Context(), proxy); !errors.Is(err, frame.ErrStale) {
		t.Errorf("the proxy's pods are decided on: %v", err)
	}
	ingress := ingressOf(t, "i", `{"rules":[{"host":"vms.example.com",`+toProxy+`}]}`)
	ways.Client = fakeclient.NewClientBuilder().WithScheme(scheme).WithObjects(&ingress).Build()
	view, err := (&Proxy{Entrances: ways}).look(t.Context(), proxy)
	if err != nil || view.Host != "vms.example.com" {
		t.Errorf("an Ingress: %+v %v", view, err)
	}
}

// unserved says that the cluster has no VolumeSnapshots.
type unserved struct{ VolumeSnapshots }

func (unserved) Served() bool { return false }

// Meanwhile an export is looked at as any other.
func TestLookUnsettled(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	export := exportOf(exports.KindClaim, "c")
	export.Namespace, export.Name = "ns", "e"
	live := fakeclient.NewClientBuilder().WithScheme(scheme).WithObjects(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: exports.Name("e")},
		Status: corev1.PodStatus{
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}).Build()
	r := &Reconciler{
		Live: live, Client: live, Config: func() config.Config { return config.Config{} },
		Now: func() time.Time { return now }, Suffix: func() string { return "x" }, Token: func() string { return "t" },
		Snapshots: unserved{},
		Entrances: &Ways{Client: live, Live: live, Routes: routeReader{unsettled: true}},
	}
	view, err := r.look(t.Context(), export)
	if err != nil || !view.Unsettled {
		t.Errorf("unsettled %v, %v", view.Unsettled, err)
	}
}

// The proxy has pods while something leads to it, as many as somebody says.
func TestProxyNext(t *testing.T) {
	for _, tc := range []struct {
		has  *int32
		host string
		want *int32
	}{
		{new(int32), "", nil},
		{new(int32), "h", new(int32(2))},
		{new(int32(2)), "h", nil},
		{new(int32(5)), "h", nil},
		{new(int32(5)), "", new(int32)},
		{nil, "", new(int32)},
		{nil, "h", nil},
	} {
		deployment := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: tc.has}}
		got := ProxyNext(ProxyView{Deployment: deployment, Host: tc.host}).Replicas
		if (got == nil) != (tc.want == nil) || got != nil && *got != *tc.want {
			t.Errorf("%v, %q: %v", tc.has, tc.host, got)
		}
		deployment.DeletionTimestamp = &metav1.Time{}
		if got := ProxyNext(ProxyView{Deployment: deployment, Host: tc.host}).Replicas; got != nil {
			t.Errorf("one that is being deleted is to have %d", *got)
		}
	}
}

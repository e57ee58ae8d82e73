//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/forward"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/metrics"
)

// prometheus reads metrics as Prometheus does: from the pods, with a ServiceAccount's token.
type prometheus struct {
	*cluster
	token  string
	client *http.Client
}

func (c *cluster) prometheus(t *testing.T, ns string) *prometheus {
	t.Helper()
	ctx := t.Context()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "prometheus", Namespace: ns}}
	if _, err := c.Kube.CoreV1().ServiceAccounts(ns).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := c.Kube.CoreV1().ServiceAccounts(ns).CreateToken(ctx, account.Name, &authenticationv1.TokenRequest{},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := c.Kube.CoreV1().ConfigMaps(names.Namespace).Get(ctx, names.CABundle, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(bundle.Data[names.CABundleKey])) {
		t.Fatalf("no certificate in ConfigMap %s", names.CABundle)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: names.DNSNameMetrics}}
	t.Cleanup(transport.CloseIdleConnections)
	return &prometheus{
		cluster: c, token: token.Status.Token, client: &http.Client{Transport: transport, Timeout: 30 * time.Second},
	}
}

func (p *prometheus) get(ctx context.Context, pod corev1.Pod, token string) (*http.Response, error) {
	url := "https://" + net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(names.PortMetrics)) + "/metrics"
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return p.client.Do(r)
}

// scrape reads all pods of a component and puts their series together.
func (p *prometheus) scrape(t *testing.T, component string) map[string]*dto.MetricFamily {
	t.Helper()
	all := map[string]*dto.MetricFamily{}
	for _, pod := range p.componentPods(t, component) {
		response, err := p.get(t.Context(), pod, p.token)
		if err != nil {
			t.Fatal(err)
		}
		var body bytes.Buffer
		_, err = body.ReadFrom(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s %v %s", pod.Name, response.Status, err, body.String())
		}
		parser := expfmt.NewTextParser(model.LegacyValidation)
		families, err := parser.TextToMetricFamilies(&body)
		if err != nil {
			t.Fatalf("%s: %v", pod.Name, err)
		}
		for name, family := range families {
			if all[name] == nil {
				all[name] = family
			} else {
				all[name].Metric = append(all[name].Metric, family.Metric...)
			}
		}
	}
	return all
}

// sum adds up the series of a family that have the given labels (name, value, name, value, …); ok says whether there
// are any.
func sum(families map[string]*dto.MetricFamily, f *metrics.Family, labels ...string) (value float64, ok bool) {
	for _, m := range families[f.Name].GetMetric() {
		has := map[string]string{}
		for _, l := range m.Label {
			has[l.GetName()] = l.GetValue()
		}
		matches := true
		for i := 0; i < len(labels); i += 2 {
			matches = matches && has[labels[i]] == labels[i+1]
		}
		if matches {
			ok = true
			value += m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return value, ok
}

// Prometheus reads every component; what a guest does is seen in its numbers. Nobody else may read them.
func TestMetrics(t *testing.T) {
	t.Parallel()
	c := theCluster
	ns := c.namespace(t, "restricted")
	var config []func(*v1.VirtualMachine)
	if v4, _ := c.families(t); !v4 { // without network data the guest asks for an IPv4 address only
		config = append(config, withNetworkData(c.eth0(t)))
	}
	g := c.create(t, newVM(ns, "measured", v1.RunStrategyAlways, config...))
	p := c.prometheus(t, ns)
	components := []string{names.VirtAPI, names.VirtController, names.VirtHandler}

	for _, component := range components {
		pod := c.componentPods(t, component)[0]
		for _, token := range []string{"", "nonsense", p.token} {
			response, err := p.get(t.Context(), pod, token)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if code := response.StatusCode; code != http.StatusUnauthorized && code != http.StatusForbidden {
				t.Errorf("%s answers %s to who has no right, token %.8s", component, response.Status, token)
			}
		}
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: ns + "-metrics"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "kubevirt.io:metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "prometheus", Namespace: ns}},
	}
	if _, err := c.Kube.RbacV1().ClusterRoleBindings().Create(t.Context(),
		binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Kube.RbacV1().ClusterRoleBindings().Delete(context.WithoutCancel(t.Context()),
			binding.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	// A refusal is remembered for ten seconds.
	for _, component := range components {
		for _, pod := range c.componentPods(t, component) {
			eventually(t, time.Minute, pod.Name+" answers", func() string {
				response, err := p.get(t.Context(), pod, p.token)
				if err != nil {
					return err.Error()
				}
				response.Body.Close()
				if response.StatusCode != http.StatusOK {
					return response.Status
				}
				return ""
			})
		}
	}

	g.waitLogin(t)
	me := []string{"namespace", ns, "name", g.name}
	before := p.scrape(t, names.VirtHandler)
	eventually(t, time.Minute, "its launcher answers in time, which on a busy machine it need not at once",
		func() string {
			if _, ok := sum(before, metrics.MemoryDomain, me...); ok {
				return ""
			}
			before = p.scrape(t, names.VirtHandler)
			return "no series of the guest"
		})
	for _, f := range []*metrics.Family{
		metrics.CPUUsage, metrics.VCPUSeconds, metrics.MemoryDomain, metrics.MemoryBalloon, metrics.MemoryResident,
		metrics.StorageReads, metrics.StorageReadBytes,
	} {
		if value, _ := sum(before, f, me...); value <= 0 {
			t.Errorf("%s is %v", f.Name, value)
		}
	}
	if _, ok := sum(before, metrics.GuestsUnreachable); !ok { // other tests' guests may be
		t.Error("not said how many guests are unreachable")
	}
	sent, _ := sum(before, metrics.NetworkSentBytes, append(me, "interface", "default")...)
	used, _ := sum(before, metrics.CPUUsage, me...)

	address := g.forwarded(t, 80, forward.TCP)
	for range 5 {
		if _, err := page(address, "/"); err != nil {
			t.Fatal(err)
		}
	}
	con := g.openConsole(t, "")
	con.login(t, "root", "tiny")
	con.run(t, "i=0; while [ $i -lt 5000 ]; do i=$((i+1)); done")
	eventually(t, time.Minute, "the guest's numbers move", func() string {
		after := p.scrape(t, names.VirtHandler)
		cpu, _ := sum(after, metrics.CPUUsage, me...)
		out, _ := sum(after, metrics.NetworkSentBytes, append(me, "interface", "default")...)
		unused, _ := sum(after, metrics.MemoryUnused, me...) // the balloon's driver tells every ten seconds
		label, _ := sum(after, metrics.CPUUsage, append(me, "kubernetes_vmi_label_app", g.name)...)
		if cpu <= used || out <= sent || unused <= 0 || label != cpu {
			return fmt.Sprintf("cpu %v, before %v; sent %v, before %v; unused memory %v; by label %v", cpu, used, out,
				sent, unused, label)
		}
		return ""
	})
	if value, _ := sum(p.scrape(t, names.VirtAPI), metrics.Consoles, "namespace", ns, "vmi", g.name); value != 1 {
		t.Errorf("%v consoles are open", value)
	}

	eventually(t, time.Minute, "virt-controller tells of the guest", func() string {
		cluster := p.scrape(t, names.VirtController)
		leading, _ := sum(cluster, metrics.ControllerLeading)
		running, _ := sum(cluster, metrics.VMIInfo, append(me, "phase", "running")...)
		vm, _ := sum(cluster, metrics.VMInfo, append(me, "status", "running", "status_group", "running")...)
		count, _ := sum(cluster, metrics.VMCount, "namespace", ns)
		if leading != 1 || running != 1 || vm != 1 || count != 1 {
			return fmt.Sprintf("%v lead, %v instances run, %v machines run, of %v", leading, running, vm, count)
		}
		return ""
	})
}

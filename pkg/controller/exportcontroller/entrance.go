package exportcontroller

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/exports"
)

// Entrance is an address outside of the cluster that leads to virt-exportproxy.
type Entrance struct {
	Host string
	// Certificate is the one that is shown there, with those that signed it as far as they are known; or, where nobody
	// knows it, those that may have signed it. It is empty for one that is not in the cluster. PEM.
	Certificate string
	// Trouble says why there is no certificate although the cluster has one; empty otherwise.
	Trouble string
}

// way is what an Ingress or a Route says of an entrance; the zero way leads nowhere.
type way struct {
	host string
	// secret has the certificate of an Ingress; empty for none.
	secret string
	// route says that the certificate is a Route's or a router's; bundle is what the Route itself says of it.
	route  bool
	bundle string
}

// choose returns the first Ingress, by name, that leads to virt-exportproxy, or else the first Route.
func choose(ingresses []networkingv1.Ingress, routes []unstructured.Unstructured) way {
	slices.SortFunc(ingresses, func(a, b networkingv1.Ingress) int { return cmp.Compare(a.Name, b.Name) })
	for i := range ingresses {
		if host := hostOfIngress(&ingresses[i]); host != "" {
			return way{host: host, secret: secretOf(&ingresses[i], host)}
		}
	}
	slices.SortFunc(routes, func(a, b unstructured.Unstructured) int { return cmp.Compare(a.GetName(), b.GetName()) })
	for i := range routes {
		if host := hostOfRoute(&routes[i]); host != "" {
			leaf, _, _ := unstructured.NestedString(routes[i].Object, "spec", "tls", "certificate")
			authority, _, _ := unstructured.NestedString(routes[i].Object, "spec", "tls", "caCertificate")
			return way{host: host, route: true, bundle: leaf + "\n" + authority}
		}
	}
	return way{}
}

// hostOfIngress returns the host that an Ingress serves with virt-exportproxy, "" for none.
func hostOfIngress(ingress *networkingv1.Ingress) string {
	if ingress.DeletionTimestamp != nil {
		return ""
	}
	leads := func(to *networkingv1.IngressBackend) bool {
		return to != nil && to.Service != nil && to.Service.Name == names.VirtExportProxy
	}
	for _, rule := range ingress.Spec.Rules {
		if rule.HTTP != nil && slices.ContainsFunc(rule.HTTP.Paths, func(path networkingv1.HTTPIngressPath) bool {
			return leads(&path.Backend)
		}) && usable(rule.Host) {
			return rule.Host
		}
	}
	if !leads(ingress.Spec.DefaultBackend) {
		return ""
	}
	// All hosts lead there but where a rule says otherwise.
	for _, rule := range ingress.Spec.Rules {
		if rule.HTTP == nil && usable(rule.Host) {
			return rule.Host
		}
	}
	for _, tls := range ingress.Spec.TLS {
		for _, host := range tls.Hosts {
			if usable(host) && !slices.ContainsFunc(ingress.Spec.Rules, func(rule networkingv1.IngressRule) bool {
				return rule.Host == host
			}) {
				return host
			}
		}
	}
	return ""
}

// hostOfRoute returns the host of an OpenShift Route to virt-exportproxy that a router has admitted. A router writes
// the host also of a Route that it refuses, as one whose host is another namespace's. Without TLS a Route has no https.
func hostOfRoute(route *unstructured.Unstructured) string {
	kind, _, _ := unstructured.NestedString(route.Object, "spec", "to", "kind")
	to, _, _ := unstructured.NestedString(route.Object, "spec", "to", "name")
	tls, _, _ := unstructured.NestedMap(route.Object, "spec", "tls")
	routers, _, _ := unstructured.NestedSlice(route.Object, "status", "ingress")
	if to != names.VirtExportProxy || kind != "" && kind != "Service" || tls == nil ||
		route.GetDeletionTimestamp() != nil {
		return ""
	}
	for _, router := range routers {
		says, _ := router.(map[string]any)
		if host, _ := says["host"].(string); admitted(says) && usable(host) {
			return host
		}
	}
	return ""
}

// admitted reports whether a router serves a Route, by what it says in the Route's status.
func admitted(says map[string]any) bool {
	conditions, _ := says["conditions"].([]any)
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, _ := c.(map[string]any)
		return condition["type"] == "Admitted" && condition["status"] == "True"
	})
}

// usable reports whether a host is an address: one with a wildcard is none.
func usable(host string) bool {
	return host != "" && len(validation.IsDNS1123Subdomain(host)) == 0
}

// secretOf returns the Secret of the certificate that an Ingress shows for a host; "" for none.
func secretOf(ingress *networkingv1.Ingress, host string) string {
	_, domain, _ := strings.Cut(host, ".")
	other := ""
	for _, tls := range ingress.Spec.TLS {
		if slices.Contains(tls.Hosts, host) || slices.Contains(tls.Hosts, "*."+domain) {
			return tls.SecretName
		}
		if len(tls.Hosts) == 0 {
			other = cmp.Or(other, tls.SecretName)
		}
	}
	return other
}

// certificateFor returns, of certificates that may be shown for a host, the one that is valid longest, with those that
// have signed it; all that are valid where none is the host's. More than exports.MaxCertificate are an error.
func certificateFor(host string, bundle []byte, now time.Time) (string, error) {
	var valid []*x509.Certificate
	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue // a key least of all
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err == nil && !now.Before(c.NotBefore) && !now.After(c.NotAfter) {
			valid = append(valid, c)
		}
	}
	var best *x509.Certificate
	for _, c := range valid {
		if c.VerifyHostname(host) == nil && (best == nil || c.NotAfter.After(best.NotAfter)) {
			best = c
		}
	}
	chain := valid
	if best != nil {
		chain = chainOf(best, valid)
	}
	var out bytes.Buffer
	for _, c := range chain {
		_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}) // a buffer takes all
	}
	text := strings.TrimSpace(out.String())
	if len(text) > exports.MaxCertificate {
		return "", fmt.Errorf("the link from outside has no certificate: the %d that may be shown for %s have %d "+
			"bytes, which is more than %d; put the one for the host, with those that signed it, into the Secret of "+
			"the Ingress or spec.tls of the Route", len(chain), host, len(text), exports.MaxCertificate)
	}
	return text, nil
}

// chainOf returns a certificate and those that have signed it, of some.
func chainOf(leaf *x509.Certificate, of []*x509.Certificate) []*x509.Certificate {
	chain := []*x509.Certificate{leaf}
	for at := leaf; len(chain) <= len(of); {
		i := slices.IndexFunc(of, func(c *x509.Certificate) bool {
			return !slices.Contains(chain, c) && at.CheckSignatureFrom(c) == nil
		})
		if i < 0 {
			break
		}
		at = of[i]
		chain = append(chain, at)
	}
	return chain
}

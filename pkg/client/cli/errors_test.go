package cli

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/vm/clones"
)

var vms = schema.GroupResource{Group: "kubevirt.io", Resource: "virtualmachines"}

func dialError(err error) error {
	return &url.Error{Op: "Get", URL: "https://10.0.0.1:6443/apis", Err: &net.OpError{Op: "dial", Net: "tcp", Err: err}}
}

// Each error has one code and one line.
func TestErrors(t *testing.T) {
	notFound := apierrors.NewNotFound(vms, "demo")
	forbidden := apierrors.NewForbidden(vms, "demo",
		errors.New(`User "me" cannot list resource "virtualmachines" in API group "kubevirt.io" at the cluster scope`))
	noNodes := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "",
		errors.New(`User "me" cannot list resource "nodes" in API group "" at the cluster scope`))
	denied := &apierrors.StatusError{
		ErrStatus: metav1.Status{
			Code: 403, Reason: metav1.StatusReasonForbidden,
			Message: `admission webhook "a.b" denied the request: spec.x: no`,
		},
	}
	noClones := &apierrors.StatusError{
		ErrStatus: metav1.Status{
			Code: 403, Reason: metav1.StatusReasonForbidden,
			Message: `admission webhook "a.b" denied the request: ` + clones.Missing("me", "team-a"),
		},
	}
	nameless := &apierrors.StatusError{ErrStatus: metav1.Status{
		Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: "there is no such thing",
	}}
	nothingThere := apierrors.NewGenericServerResponse(http.StatusNotFound, "GET", vms, "", "404 page not found", 0,
		true)
	connection := Connection{Context: "prod", Server: "https://10.0.0.1:6443", Program: "kubectl virt"}
	for _, test := range []struct {
		what string
		err  error
		code int
		line string
	}{
		{"none", nil, ExitOK, ""},
		{"usage", UsageErrorf("--x: no"), ExitUsage, "--x: no"},
		{"plain", errors.New("broken"), ExitFailure, "broken"},
		{
			"wrapped not found", fmt.Errorf("start VM: %w", notFound), ExitNotFound,
			`start VM: virtualmachines.kubevirt.io "demo" not found`,
		},
		{"no object", fmt.Errorf("VM %q %w", "x", action.ErrNotFound), ExitNotFound, `VM "x" not found`},
		{
			"conflict", apierrors.NewConflict(vms, "demo", errors.New("VM is not running")), ExitFailure,
			"VM is not running",
		},
		{
			"conflict of the API",
			&apierrors.StatusError{
				ErrStatus: apierrors.NewConflict(vms, "demo", errors.New("the guest agent does not answer")).Status(),
			},
			ExitFailure, "demo: the guest agent does not answer",
		},
		{
			"local port", &net.OpError{Op: "listen", Net: "tcp", Err: syscall.EADDRINUSE}, ExitFailure,
			"listen tcp: address already in use",
		},
		{
			"local socket", &net.OpError{Op: "dial", Net: "unix", Err: syscall.ENOENT}, ExitFailure,
			"dial unix: no such file or directory",
		},
		{
			"forbidden", forbidden, ExitNotAllowed,
			"not allowed: user \"me\" may not list virtualmachines.kubevirt.io in all namespaces; " +
				"check with `kubectl auth can-i list virtualmachines.kubevirt.io -A`",
		},
		{
			"forbidden, of the cluster", noNodes, ExitNotAllowed,
			"not allowed: user \"me\" may not list nodes of the cluster; check with `kubectl auth can-i list nodes`",
		},
		{"denied", fmt.Errorf("create VM: %w", denied), ExitFailure, "spec.x: no"},
		{
			"denied for a right", fmt.Errorf("create clone: %w", noClones), ExitNotAllowed,
			"not allowed: user \"me\" may not create virtualmachineclones/source.clone.kubevirt.io in namespace " +
				"\"team-a\"; check with `kubectl auth can-i create virtualmachineclones.clone.kubevirt.io " +
				"--subresource=source -n team-a`",
		},
		{
			"unauthorized", apierrors.NewUnauthorized("Unauthorized"), ExitNotAllowed,
			`https://10.0.0.1:6443 rejects your credentials (context "prod")`,
		},
		{"timed out", fmt.Errorf("%w waiting", action.ErrTimeout), ExitTimeout, "timed out waiting"},
		{"deadline", fmt.Errorf("wait: %w", context.DeadlineExceeded), ExitTimeout, "wait: timed out"},
		{"lost", fmt.Errorf("x: %w", action.ErrLost), ExitLost, "x: the connection was lost"},
		{"cancelled", fmt.Errorf("x: %w", context.Canceled), ExitInterrupted, "interrupted"},
		{"a 404 that names nothing", fmt.Errorf("ask: %w", nameless), ExitNotFound, "ask: there is no such thing"},
		{
			"not installed", fmt.Errorf("list: %w", nothingThere), ExitFailure,
			"virtkit is not installed in this cluster (context \"prod\"); install it with `kubectl virt install`",
		},
		{
			"unavailable", apierrors.NewServiceUnavailable("no endpoints"), ExitFailure,
			"look at the pods in namespace kubevirt",
		},
		{
			"refused", dialError(syscall.ECONNREFUSED), ExitFailure,
			`cannot reach the cluster at https://10.0.0.1:6443 (context "prod"): connection refused; is it running, and is this the right context?`,
		},
		{
			"no such host", dialError(&net.DNSError{Name: "nowhere", IsNotFound: true}), ExitFailure,
			`no such host "nowhere"`,
		},
		{
			"no such host of an image", fmt.Errorf("download https://images.example/x: %w", &action.HostError{
				Host: "images.example",
				Err: &net.OpError{
					Op: "dial", Net: "tcp", Err: &net.DNSError{Name: "images.example", IsNotFound: true},
				},
			}), ExitFailure,
			`download https://images.example/x: cannot reach images.example: no such host "images.example"; this ` +
				"machine asks it, not the cluster; set $HTTPS_PROXY where that takes a proxy",
		},
		{
			"proxy that is not there", fmt.Errorf("download https://images.example/x: %w", &action.HostError{
				Host: "images.example",
				Err:  &net.OpError{Op: "proxyconnect", Net: "tcp", Err: syscall.ECONNREFUSED},
			}), ExitFailure,
			"download https://images.example/x: cannot reach images.example through the proxy that $HTTPS_PROXY or " +
				"$HTTP_PROXY names: connection refused",
		},
		{
			"host whose certificate is unknown", fmt.Errorf("download https://images.example/x: %w", &action.HostError{
				Host: "images.example", Err: x509.UnknownAuthorityError{},
			}), ExitFailure, "download https://images.example/x: x509: certificate signed by unknown authority",
		},
		{
			"no answer", &url.Error{Op: "Get", URL: "https://10.0.0.1:6443/", Err: context.DeadlineExceeded},
			ExitFailure, "no answer in time",
		},
		{
			"server that hangs", &url.Error{Op: "Get", URL: "https://10.0.0.1:6443", Err: errors.New(connectionLost)},
			ExitFailure, `cannot reach the cluster at https://10.0.0.1:6443 (context "prod"): the connection was lost;`,
		},
		{
			"unknown authority",
			&url.Error{Op: "Get", URL: "https://10.0.0.1:6443/", Err: x509.UnknownAuthorityError{}}, ExitFailure,
			"cannot trust https://10.0.0.1:6443",
		},
		{"no kubeconfig", clientcmd.ErrEmptyConfig, ExitFailure, "no cluster is configured"},
		{"own code", &ExitError{Code: 42, Err: errors.New("guest said so")}, 42, "guest said so"},
		{"all alike", utilerrors.NewAggregate([]error{notFound, notFound}), ExitNotFound, `"demo" not found`},
		{
			"different", utilerrors.NewAggregate([]error{notFound, errors.New("x")}), ExitFailure,
			`"demo" not found` + "\nx",
		},
	} {
		if got := ExitCode(test.err); got != test.code {
			t.Errorf("%s: exit code %d, want %d", test.what, got, test.code)
		}
		if test.err == nil {
			continue
		}
		got := Explain(test.err, connection)
		if !strings.Contains(got, test.line) {
			t.Errorf("%s: got %q, want %q in it", test.what, got, test.line)
		}
		if lines := strings.Count(got, "\n"); lines > strings.Count(test.line, "\n") {
			t.Errorf("%s: %d lines: %s", test.what, lines+1, got)
		}
	}
}

func TestExpiredCertificate(t *testing.T) {
	end := time.Date(2025, 3, 1, 0, 0, 0, 0, time.UTC)
	c := Connection{Server: "https://a", CertNotAfter: end, Now: end.Add(time.Hour)}
	if got := Explain(apierrors.NewUnauthorized("x"), c); !strings.Contains(got, "expired on 2025-03-01T00:00:00Z") {
		t.Errorf("got %q", got)
	}
	c.Now = end.Add(-time.Hour)
	if got := Explain(apierrors.NewUnauthorized("x"), c); strings.Contains(got, "2025") {
		t.Errorf("a valid certificate is blamed: %q", got)
	}
}

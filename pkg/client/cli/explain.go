package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
)

// Connection has the names that a message about the cluster can use. The zero value names nothing.
type Connection struct {
	// Context and Server are the kubeconfig's; Program is how the user calls us.
	Context, Server, Program string
	// CertNotAfter is the end of the client certificate's life, zero when there is none.
	CertNotAfter time.Time
	Now          time.Time
}

// Explain returns err in words for the user: one line for each thing that went wrong, none of which needs this
// program's source to be understood.
func Explain(err error, c Connection) string {
	if many := utilerrors.Aggregate(nil); errors.As(err, &many) {
		for _, e := range many.Errors() {
			if clientcmd.IsContextNotFound(e) {
				return Explain(e, c) // the rest only follows from it
			}
		}
		lines := make([]string, 0, len(many.Errors()))
		for _, e := range many.Errors() {
			if line := Explain(e, c); !slices.Contains(lines, line) {
				lines = append(lines, line)
			}
		}
		return strings.Join(lines, "\n")
	}
	switch {
	case errors.Is(err, context.Canceled):
		return "interrupted"
	case clientcmd.IsEmptyConfig(err):
		return "no cluster is configured: give --kubeconfig, set $KUBECONFIG, or put one at ~/.kube/config"
	case clientcmd.IsContextNotFound(err):
		return fmt.Sprintf("there is no context %q in the kubeconfig; `kubectl config get-contexts` lists those "+
			"there are", missingContext(err))
	case errors.Is(err, action.ErrNotInstalled), client.NoPath(err):
		return fmt.Sprintf("virtkit is not installed in this cluster%s; install it with `%s install`", c.where(),
			c.program())
	case apierrors.IsUnauthorized(err):
		return c.explainUnauthorized()
	case isDenial(err):
		return denial(err)
	case apierrors.IsForbidden(err):
		return forbidden(err)
	case apierrors.IsConflict(err):
		return unfulfilled.ReplaceAllString(strings.TrimRight(err.Error(), "\n"), "$1: ")
	case apierrors.IsServiceUnavailable(err):
		return fmt.Sprintf("%s; if this persists look at the pods in namespace kubevirt", oneLine(err))
	}
	if other := (*action.HostError)(nil); errors.As(err, &other) && isNetwork(other.Err) {
		return explainHost(err, other)
	}
	if isNetwork(err) {
		return c.explainNetwork(err)
	}
	return untimed.ReplaceAllString(strings.TrimRight(err.Error(), "\n"), "timed out")
}

// untimed is how Go says that time ran out, on its way through libraries.
var untimed = regexp.MustCompile(`context deadline exceeded|` +
	`(client )?rate(: Wait\(n=\d+\)| limiter Wait returned an error:)? would exceed context deadline`)

func (c Connection) program() string {
	if c.Program == "" {
		return "virtctl"
	}
	return c.Program
}

// where returns " (context X)" or nothing.
func (c Connection) where() string {
	if c.Context == "" {
		return ""
	}
	return fmt.Sprintf(" (context %q)", c.Context)
}

func (c Connection) explainUnauthorized() string {
	server := c.Server
	if server == "" {
		server = "the cluster"
	}
	if !c.CertNotAfter.IsZero() && c.Now.After(c.CertNotAfter) {
		return fmt.Sprintf("%s rejects your credentials%s: the client certificate in your kubeconfig expired on %s; "+
			"get a new kubeconfig",
			server, c.where(), c.CertNotAfter.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("%s rejects your credentials%s: they are missing, wrong or expired; log in again or get a new "+
		"kubeconfig", server, c.where())
}

func (c Connection) explainNetwork(err error) string {
	server := c.Server
	var ue *url.Error
	if errors.As(err, &ue) {
		if u, perr := url.Parse(ue.URL); perr == nil && u.Host != "" {
			server = u.Scheme + "://" + u.Host
		}
	}
	if server == "" {
		server = "the cluster"
	}
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var hostname x509.HostnameError
	var alert tls.AlertError
	switch {
	case errors.As(err, &alert):
		if !c.CertNotAfter.IsZero() && c.Now.After(c.CertNotAfter) {
			return c.explainUnauthorized()
		}
		return fmt.Sprintf("%s ends the TLS handshake%s: %s", server, c.where(), alert.Error())
	case errors.As(err, &unknown):
		return fmt.Sprintf("cannot trust %s%s: its certificate is signed by an unknown authority; the kubeconfig is "+
			"likely of another cluster", server, c.where())
	case errors.As(err, &hostname), errors.As(err, &invalid):
		return fmt.Sprintf("cannot trust %s%s: %s", server, c.where(), rootCause(err))
	}
	return fmt.Sprintf("cannot reach the cluster at %s%s: %s; is it running, and is this the right context?", server,
		c.where(), networkCause(err))
}

// explainHost returns err, whose cause is that a host other than the cluster's is not reached.
func explainHost(err error, other *action.HostError) string {
	through := ""
	if oe := (*net.OpError)(nil); errors.As(other.Err, &oe) && oe.Op == "proxyconnect" {
		through = " through the proxy that $HTTPS_PROXY or $HTTP_PROXY names"
	}
	text := fmt.Sprintf("cannot reach %s%s: %s", other.Host, through, networkCause(other.Err))
	if through == "" {
		text += "; this machine asks it, not the cluster; set $HTTPS_PROXY where that takes a proxy"
	}
	doing, _ := strings.CutSuffix(oneLine(err), oneLine(other))
	return doing + text
}

// connectionLost is what Go says of a server whose open connection does not answer any more.
const connectionLost = "http2: client connection lost"

// networkCause returns the innermost reason of a failed connection, in few words.
func networkCause(err error) string {
	var dns *net.DNSError
	var nerr net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.As(err, &dns) && dns.IsNotFound:
		return fmt.Sprintf("no such host %q", dns.Name)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &nerr) && nerr.Timeout():
		return "no answer in time"
	}
	if cause := rootCause(err); cause != connectionLost {
		return cause
	}
	return "the connection was lost"
}

func rootCause(err error) string {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return oneLine(err)
		}
		err = next
	}
}

// isNetwork reports whether err comes from reaching the server rather than from its answer, or from this machine: a
// port that cannot be listened on, a socket of its own.
func isNetwork(err error) bool {
	var ue *url.Error
	if errors.As(err, &ue) {
		return true
	}
	var oe *net.OpError
	return errors.As(err, &oe) && oe.Op != "listen" && oe.Net != "unix"
}

// unfulfilled is how the API machinery begins what an object's state does not allow.
var unfulfilled = regexp.MustCompile(`Operation cannot be fulfilled on \S+ "([^"]+)": `)

// missingContext returns the name in clientcmd's error.
func missingContext(err error) string {
	_, name, _ := strings.Cut(oneLine(err), "specified context: ")
	return name
}

var denied = regexp.MustCompile(`^(?:.*: )?admission webhook "[^"]+" denied the request: `)

// isDenial reports whether an admission webhook refused the object: its content is wrong, not the user's rights. A
// webhook that asks for a right says so in the API server's words.
func isDenial(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	message := status.Status().Message
	return denied.MatchString(message) && !rbac.MatchString(message)
}

// denial returns what a webhook said, without who said it.
func denial(err error) string {
	var status apierrors.APIStatus
	errors.As(err, &status)
	return strings.TrimRight(denied.ReplaceAllString(status.Status().Message, ""), "\n")
}

var rbac = regexp.MustCompile(
	`[Uu]ser "([^"]*)" cannot (\w+) resource "([^"]*)" in API group "([^"]*)"(?: in the namespace "([^"]*)")?`,
)

// forbidden returns which right is missing and how to look into it.
func forbidden(err error) string {
	m := rbac.FindStringSubmatch(err.Error())
	if m == nil {
		return oneLine(err)
	}
	resource, sub, hasSub := strings.Cut(m[3], "/")
	group := ""
	if m[4] != "" {
		group = "." + m[4]
	}
	check := fmt.Sprintf("kubectl auth can-i %s %s%s", m[2], resource, group)
	if hasSub {
		check += " --subresource=" + sub
	}
	// Without a namespace it is all of them, or a thing of the cluster; can-i takes -A for both.
	where, flag := "in all namespaces", " -A"
	switch {
	case m[5] != "":
		where, flag = fmt.Sprintf("in namespace %q", m[5]), " -n "+m[5]
	case clusterScoped[resource]:
		where, flag = "of the cluster", ""
	}
	return fmt.Sprintf("not allowed: user %q may not %s %s%s %s; check with `%s%s`", m[1], m[2], m[3], group, where,
		check, flag)
}

// clusterScoped are the resources without namespace that commands ask for.
var clusterScoped = map[string]bool{
	"clusterroles": true, "customresourcedefinitions": true, "migrationpolicies": true, "namespaces": true,
	"nodes": true, "persistentvolumes": true, "storageclasses": true, "virtualmachineclusterinstancetypes": true,
	"virtualmachineclusterpreferences": true,
}

func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}

// certNotAfter reads the client certificate of config, if it has one, and returns its last valid second.
func certNotAfter(config *rest.Config) time.Time {
	data := config.CertData
	if len(data) == 0 && config.CertFile != "" {
		var err error
		if data, err = os.ReadFile(config.CertFile); err != nil {
			return time.Time{}
		}
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return time.Time{}
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}
	}
	return cert.NotAfter
}

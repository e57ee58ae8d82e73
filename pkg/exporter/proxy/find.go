package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"kubevirt.io/api/export/v1beta1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/exports"
)

const (
	// fresh is how long an answer of the API server counts: the parts of a download ask for the same export. That it
	// is not ready, or not there, may change sooner.
	fresh, freshAbsence = 5 * time.Second, time.Second
	// maxFound bounds how many answers are kept, lookups how many are asked for at once.
	maxFound, lookups = 1024, 8
	// maxObject bounds an export as the API server sends it, bytes.
	maxObject = 4 << 20
	// account has what Kubernetes gives a pod to speak with the API server.
	account = "/var/run/secrets/kubernetes.io/serviceaccount/"
)

// API finds exports by asking the API server.
type API struct {
	// Base is the API server's address; Token is a file with the token, which the kubelet renews.
	Base, Token string
	Client      *http.Client
	Now         func() time.Time

	asking chan struct{}
	mu     sync.Mutex
	found  map[string]found
}

type found struct {
	export *Export
	err    error
	at     time.Time
}

// NewAPI returns the API server that a pod speaks with.
func NewAPI() (*API, error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, errors.New("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT do not name an API server: " +
			"run this in a pod")
	}
	authority, err := os.ReadFile(account + "ca.crt")
	if err != nil {
		return nil, fmt.Errorf("read the authority of the API server: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("%sca.crt has no certificate", account)
	}
	return &API{
		Base: "https://" + net.JoinHostPort(host, port), Token: account + "token", Now: time.Now,
		Client: &http.Client{
			Timeout: dialWithin,
			Transport: &http.Transport{
				TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, IdleConnTimeout: idle,
				TLSHandshakeTimeout: dialWithin,
			},
		},
		asking: make(chan struct{}, lookups),
	}, nil
}

// Find implements Finder. That there is no such export is remembered, too.
func (a *API) Find(ctx context.Context, namespace, name string) (*Export, error) {
	key := namespace + "/" + name
	if known, ok := a.known(key); ok {
		return known.export, known.err
	}
	select {
	case a.asking <- struct{}{}:
		defer func() { <-a.asking }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if known, ok := a.known(key); ok { // another has asked meanwhile
		return known.export, known.err
	}
	export, err := a.ask(ctx, namespace, name)
	if err == nil || errors.Is(err, errAbsent) {
		a.keep(key, found{export, err, a.Now()})
	}
	return export, err
}

func (a *API) known(key string) (found, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known, ok := a.found[key]
	lifetime := freshAbsence
	if known.export != nil && known.export.Ready {
		lifetime = fresh
	}
	return known, ok && a.Now().Sub(known.at) < lifetime
}

func (a *API) keep(key string, f found) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.found == nil || len(a.found) >= maxFound {
		a.found = map[string]found{}
	}
	a.found[key] = f
}

// ask reads an export.
func (a *API) ask(ctx context.Context, namespace, name string) (*Export, error) {
	token, err := os.ReadFile(a.Token)
	if err != nil {
		return nil, fmt.Errorf("read the service account's token: %w", err)
	}
	address := a.Base + exports.Path + "/namespaces/" + url.PathEscape(namespace) + "/" + exports.Resource + "/" +
		url.PathEscape(name)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", names.VirtExportProxy)
	response, err := a.Client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return nil, errAbsent
	default:
		return nil, fmt.Errorf("the API server answers %s", response.Status)
	}
	var object v1beta1.VirtualMachineExport
	if err := json.NewDecoder(io.LimitReader(response.Body, maxObject)).Decode(&object); err != nil {
		return nil, fmt.Errorf("decode the export: %w", err)
	}
	return known(&object), nil
}

// known returns what the proxy needs of an export.
func known(object *v1beta1.VirtualMachineExport) *Export {
	out := &Export{}
	if object.Status == nil || object.Status.Links == nil || object.Status.Links.Internal == nil {
		return out
	}
	links := object.Status.Links
	out.Ready = object.Status.Phase == v1beta1.Ready
	out.Authority = links.Internal.Cert
	if links.External != nil {
		out.Address = exports.AddressOf(links.External, object.Namespace, object.Name)
		out.Certificate = links.External.Cert
	}
	return out
}

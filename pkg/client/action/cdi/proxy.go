package cdi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// Where the upload proxy takes images. What is sent to pathAsync is answered when it has come, to pathSync when it is
// written.
const (
	pathSync  = "/v1beta1/upload"
	pathAsync = "/v1beta1/upload-async"
)

// ErrNoProxy is an upload proxy whose address nobody has said.
var ErrNoProxy = errors.New("CDI does not say the address of its upload proxy; give it with --uploadproxy-url, such " +
	"as https://localhost:8443 beside `kubectl port-forward -n cdi service/cdi-uploadproxy 8443:443`")

// AddressError is an address that no upload proxy can have, or that would show the token to others.
type AddressError struct{ Address, Reason string }

func (e *AddressError) Error() string {
	return fmt.Sprintf("%q is no address of an upload proxy: %s", e.Address, e.Reason)
}

// Proxy is CDI's upload proxy.
type Proxy struct {
	base   *url.URL
	client *http.Client
}

// Host returns the host of the proxy, with the port where its address has one.
func (p *Proxy) Host() string { return p.base.Host }

// FindProxy returns the upload proxy at an address or, if that is empty, at the one that CDI says. The proxy's
// certificate must be one that this machine trusts, or of the authority that CDI names, unless insecure is set. Errors:
// ErrNoProxy, *AddressError.
func FindProxy(ctx context.Context, r Reader, address string, insecure bool) (*Proxy, error) {
	var config cdiv1.CDIConfig
	err := r.Read(ctx, Group+"/cdiconfigs/config", nil, &config)
	switch {
	case err == nil, address != "", apierrors.IsNotFound(err):
	case apierrors.IsForbidden(err):
		return nil, ErrNoProxy
	default:
		return nil, fmt.Errorf("read the configuration of CDI: %w", err)
	}
	if said := config.Status.UploadProxyURL; address == "" && said != nil {
		address = *said
	}
	if address == "" {
		return nil, ErrNoProxy
	}
	base, err := parseAddress(address, insecure)
	if err != nil {
		return nil, err
	}
	trust := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: insecure}
	if authority := config.Status.UploadProxyCA; authority != nil && *authority != "" {
		if trust.RootCAs, err = x509.SystemCertPool(); err != nil {
			trust.RootCAs = x509.NewCertPool()
		}
		trust.RootCAs.AppendCertsFromPEM([]byte(*authority)) // of one that cannot be read, the system's are left
	}
	return &Proxy{base: base, client: &http.Client{
		Transport: &http.Transport{
			TLSClientConfig: trust, Proxy: http.ProxyFromEnvironment, DisableCompression: true,
			DialContext:         (&net.Dialer{Timeout: 30 * time.Second}).DialContext,
			TLSHandshakeTimeout: 30 * time.Second,
			// A refusal comes before the image is sent.
			ExpectContinueTimeout: 5 * time.Second,
		},
		// The token is for nobody else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// parseAddress reads the address of a proxy, with or without its scheme and the path of uploads.
func parseAddress(address string, insecure bool) (*url.URL, error) {
	full := address
	if !strings.Contains(full, "://") {
		full = "https://" + full
	}
	base, err := url.Parse(full)
	switch {
	case err != nil || base.Hostname() == "" || base.User != nil || base.RawQuery != "" || base.Fragment != "":
		return nil, &AddressError{address, "write one such as https://cdi-uploadproxy.example.com"}
	case base.Scheme != "https" && base.Scheme != "http":
		return nil, &AddressError{address, "it has not https"}
	case base.Scheme == "http" && !insecure:
		return nil, &AddressError{address, "http shows the upload's token to others; write https, or add --insecure"}
	}
	for _, known := range []string{pathAsync, pathSync} {
		base.Path = strings.TrimSuffix(strings.TrimSuffix(base.Path, "/"), known)
	}
	return base, nil
}

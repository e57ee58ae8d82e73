package export

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"kubevirt.io/api/export/v1beta1"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/exports"
)

// Reach is how the server of an export is reached.
type Reach struct {
	// PortForward goes through the API server, as it does where the export has no external address.
	PortForward bool
	// ServiceURL is a HOST:PORT that leads to the Service; empty for none.
	ServiceURL string
	// Insecure believes any certificate.
	Insecure bool
	// Inside goes through the API server also where the export has an external address, if it has one inside, too: for
	// commands whose users cannot say otherwise.
	Inside bool

	// measures says that the server reads the disk before it answers. What leads there from outside waits for an answer
	// for a minute or less, and the server begins anew with the next request, so this goes inside, too, if the
	// caller may.
	measures bool
}

// answerIn is how long the server may take to answer, measuredIn where it reads a disk before.
const answerIn, measuredIn = 2 * time.Minute, 6 * time.Hour

// server is the server of an export.
type server struct {
	link   *v1beta1.VirtualMachineExportLink
	client *http.Client
	token  string

	// forwarded is whether the API server leads to it. host is where its Service is reached, empty for what the link
	// has.
	forwarded bool
	host      string
}

// reach makes a client of the server. close ends its connections.
func reach(ctx context.Context, api API, export *v1beta1.VirtualMachineExport, r Reach) (*server, error) {
	token, err := Token(ctx, api, export)
	if err != nil {
		return nil, err
	}
	links := export.Status.Links
	inside := links.Internal != nil && (r.Inside || r.measures)
	if inside && !r.Inside && !r.PortForward && r.ServiceURL == "" && links.External != nil {
		inside = mayForward(ctx, api, export)
	}
	forward := r.PortForward || r.ServiceURL == "" && (links.External == nil || inside)
	link := links.External
	if forward || r.ServiceURL != "" {
		link = links.Internal
	}
	if link == nil {
		return nil, fmt.Errorf("VirtualMachineExport %s/%s has no address in the cluster yet", export.Namespace,
			export.Name)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: r.Insecure}
	if link.Cert != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM([]byte(link.Cert)) {
			return nil, errors.New("the export's certificate is none")
		}
	}
	within := answerIn
	if r.measures {
		within = measuredIn
	}
	transport := &http.Transport{
		TLSClientConfig: config, Proxy: http.ProxyFromEnvironment, DisableCompression: true,
		TLSHandshakeTimeout: 30 * time.Second, ResponseHeaderTimeout: within,
	}
	switch {
	case forward:
		transport.Proxy = nil
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return forwarded(ctx, api, export)
		}
	case r.ServiceURL != "":
		// The certificate is the Service's, whatever leads to it.
		transport.Proxy = nil
		transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: 30 * time.Second}).DialContext(ctx, network, r.ServiceURL)
		}
	}
	return &server{link: link, token: token, forwarded: forward, host: r.ServiceURL, client: &http.Client{
		Transport: transport,
		// The token is for nobody else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func (s *server) close() { s.client.CloseIdleConnections() }

// mayForward tells whether the API server lets the caller reach the export's pod. An answer that is no refusal is for
// the connection itself to say.
func mayForward(ctx context.Context, api API, export *v1beta1.VirtualMachineExport) bool {
	conn, err := forwarded(ctx, api, export)
	if err == nil {
		_ = conn.Close()
	}
	return !apierrors.IsForbidden(err)
}

// forwarded returns a connection to the export's pod, through the API server.
func forwarded(ctx context.Context, api API, export *v1beta1.VirtualMachineExport) (net.Conn, error) {
	service, base := &corev1.Service{}, "/api/v1/namespaces/"+url.PathEscape(export.Namespace)
	if err := api.Read(ctx, base+"/services/"+url.PathEscape(export.Status.ServiceName), nil, service); err != nil {
		return nil, fmt.Errorf("read Service %s/%s: %w", export.Namespace, export.Status.ServiceName, err)
	}
	port := uint16(0)
	for _, p := range service.Spec.Ports {
		if p.Port == names.ExportServicePort {
			port = uint16(p.TargetPort.IntValue())
		}
	}
	if port == 0 || len(service.Spec.Selector) == 0 {
		return nil, fmt.Errorf("no port of a pod belongs to Service %s/%s", export.Namespace, service.Name)
	}
	var pods corev1.PodList
	query := url.Values{"labelSelector": {labels.SelectorFromSet(service.Spec.Selector).String()}}
	if err := api.Read(ctx, base+"/pods", query, &pods); err != nil {
		return nil, fmt.Errorf("list the export's pods: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
			conn, err := api.PodPort(ctx, export.Namespace, pod.Name, port)
			if err != nil {
				return nil, fmt.Errorf("reach pod %s/%s: %w", export.Namespace, pod.Name, err)
			}
			return conn, nil
		}
	}
	return nil, fmt.Errorf("no pod of VirtualMachineExport %s/%s runs", export.Namespace, export.Name)
}

// get sends a request with the token.
func (s *server) get(ctx context.Context, address string, header http.Header) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, fmt.Errorf("the export's address %q is none: %w", address, err)
	}
	if request.URL.Scheme != "https" {
		return nil, fmt.Errorf("the export's address %q is not https, and would carry the token openly", address)
	}
	for name, values := range header {
		request.Header[name] = values
	}
	request.Header.Set(names.HeaderExportToken, s.token)
	answer, err := s.client.Do(request)
	if err == nil {
		return answer, nil
	}
	if !s.forwarded {
		return nil, &action.HostError{Host: cmp.Or(s.host, request.URL.Host), Err: err}
	}
	// The address is one of the cluster, which is not what was dialled.
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err
	}
	return nil, &unreadError{err}
}

// choose returns the address and the format of what is downloaded.
func (d *Download) choose(link *v1beta1.VirtualMachineExportLink) (
	address string, format v1beta1.ExportVolumeFormat, err error,
) {
	if !d.OVA {
		return choose(link, d.Volume, d.QCOW2)
	}
	for _, manifest := range link.Manifests {
		if manifest.Type == exports.ManifestOVA {
			return manifest.Url, exports.FormatOVA, nil
		}
	}
	return "", "", errors.New("the export is not served as OVA: it is of a claim, which has no VM, or an older " +
		"virtkit serves it")
}

// choose returns the address and the format of a volume. Compressed is chosen before raw, qcow2 only where it is asked
// for.
func choose(link *v1beta1.VirtualMachineExportLink, volume string, qcow2 bool) (
	address string, format v1beta1.ExportVolumeFormat, err error,
) {
	if len(link.Volumes) == 0 {
		return "", "", errors.New("the export has no volumes")
	}
	var all []string
	for _, v := range link.Volumes {
		all = append(all, v.Name)
	}
	chosen := link.Volumes[0]
	switch i := slices.Index(all, volume); {
	case volume == "" && len(all) > 1:
		return "", "", fmt.Errorf("the export has several volumes; choose one with --volume: %s",
			strings.Join(all, ", "))
	case volume != "" && i < 0:
		return "", "", fmt.Errorf("the export has no volume %s; it has: %s", volume, strings.Join(all, ", "))
	case volume != "":
		chosen = link.Volumes[i]
	}
	wanted := []v1beta1.ExportVolumeFormat{v1beta1.KubeVirtGz, v1beta1.ArchiveGz, v1beta1.KubeVirtRaw}
	if qcow2 {
		wanted = []v1beta1.ExportVolumeFormat{exports.FormatQCOW2}
	}
	var served []string
	for _, f := range chosen.Formats {
		served = append(served, string(f.Format))
	}
	for _, want := range wanted {
		if i := slices.Index(served, string(want)); i >= 0 {
			return chosen.Formats[i].Url, want, nil
		}
	}
	if qcow2 {
		return "", "", fmt.Errorf("volume %s of the export is not served as qcow2; its formats are: %s; an older "+
			"virtkit has no qcow2, and a file system is no disk", chosen.Name, strings.Join(served, ", "))
	}
	return "", "", fmt.Errorf("volume %s of the export has no format that can be downloaded", chosen.Name)
}

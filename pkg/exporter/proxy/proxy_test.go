package proxy

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/service/certs"
	"github.com/virtkit/virtkit/pkg/vm/exports"
)

const (
	host = "virt-export-e.ns.svc"
	at   = "/api/export.kubevirt.io/v1beta1/namespaces/ns/virtualmachineexports/"
	disk = at + "e/volumes/root/disk.img"
)

// finder has exports by name.
type finder map[string]*Export

func (f finder) Find(_ context.Context, namespace, name string) (*Export, error) {
	switch export := f[namespace+"/"+name]; {
	case name == "broken":
		return nil, errors.New("the API server is away")
	case export == nil:
		return nil, errAbsent
	default:
		return export, nil
	}
}

// pair makes an authority and a certificate of it for the export's Service.
func pair(t *testing.T) (authority string, leaf tls.Certificate) {
	t.Helper()
	root, err := certs.NewAuthority(time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	hosts := []string{host, "virt-export-e.ns2.svc"}
	issued, err := root.Issue(certs.Leaf{CommonName: "e", DNSNames: hosts}, time.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return string(root.CertificatePEM()),
		tls.Certificate{Certificate: [][]byte{issued.Certificate.Raw}, PrivateKey: issued.Key}
}

// newProxy returns a proxy before an export e in namespace ns that a handler answers for.
func newProxy(t *testing.T, answer http.HandlerFunc) *httptest.Server {
	t.Helper()
	authority, leaf := pair(t)
	server := httptest.NewUnstartedServer(answer)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{leaf}}
	server.StartTLS()
	t.Cleanup(server.Close)
	other, _ := pair(t)
	h := NewHandler(finder{
		"ns/e": {
			Ready: true, Authority: authority, Certificate: "OUTSIDE",
			Address: exports.External("vms.example.com", "ns", "e"),
		},
		"ns2/e":      {Ready: true, Authority: authority},
		"ns/pending": {Authority: authority}, "ns/none": {Ready: true},
		"ns/other": {Ready: true, Authority: other},
	}, time.Minute, slog.New(slog.DiscardHandler))
	h.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if !strings.HasPrefix(address, "virt-export-") || !strings.HasSuffix(address, ".svc:443") {
			t.Errorf("dials %s", address)
		}
		return (&net.Dialer{}).DialContext(ctx, network, server.Listener.Addr().String())
	}
	front := httptest.NewServer(h)
	t.Cleanup(front.Close)
	return front
}

// answer is one of the proxy's, with a body that needs no closing.
type answer struct {
	Status                    string
	StatusCode, ContentLength int
	Header                    http.Header
}

func ask(t *testing.T, front *httptest.Server, method, path string, header http.Header) (answer, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, front.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header = header
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{response.Status, response.StatusCode, int(response.ContentLength), response.Header}, string(data)
}

func withToken(more ...string) http.Header {
	header := http.Header{}
	header.Set(names.HeaderExportToken, "secret")
	for i := 0; i < len(more); i += 2 {
		header.Set(more[i], more[i+1])
	}
	return header
}

// A range of a disk comes through as the export's server gives it, which sees what is for it and nothing else.
func TestPassesOn(t *testing.T) {
	front := newProxy(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Host != host || r.URL.Path != "/volumes/root/disk.img" || r.URL.RawQuery != "offset=5" ||
			r.Header.Get(names.HeaderExportToken) != "secret" || r.Header.Get("Cookie") != "" ||
			r.Header.Get("Authorization") != "" || r.Header.Get("X-Forwarded-For") != "" ||
			r.Header.Get(names.HeaderExportAddress) != "" {
			t.Errorf("%s %s %v", r.Host, r.URL, r.Header)
		}
		w.Header().Set("ETag", `"tag"`)
		w.Header().Set(names.HeaderDiskSize, "10")
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader("0123456789"))
	})
	r, got := ask(t, front, http.MethodGet, disk+"?offset=5", withToken("Range", "bytes=2-4", "If-Range", `"tag"`,
		"Cookie", "a=b", "Authorization", "Bearer x", names.HeaderExportAddress, "https://evil.example.com"))
	if r.StatusCode != http.StatusPartialContent || got != "234" || r.Header.Get("ETag") != `"tag"` ||
		r.Header.Get(names.HeaderDiskSize) != "10" || len(r.Header.Values("X-Content-Type-Options")) != 1 {
		t.Errorf("%d %q %v", r.StatusCode, got, r.Header)
	}
	if r, got := ask(t, front, http.MethodHead, disk+"?offset=5", withToken()); r.ContentLength != 10 || got != "" {
		t.Errorf("HEAD: %d %q", r.ContentLength, got)
	}
}

// The manifests for another cluster get the address and the certificate of the export's external link.
func TestManifestsOutside(t *testing.T) {
	front := newProxy(t, func(w http.ResponseWriter, r *http.Request) {
		authority, err := base64.StdEncoding.DecodeString(r.Header.Get(names.HeaderExportAuthority))
		if err != nil || string(authority) != "OUTSIDE" || r.URL.Path != "/external/manifests/all" ||
			r.Header.Get("Accept") != "application/yaml" ||
			r.Header.Get(names.HeaderExportAddress) != "https://vms.example.com"+at+"e" {
			t.Errorf("%s %v", r.URL, r.Header)
		}
	})
	if r, _ := ask(t, front, http.MethodGet, at+"e/external/manifests/all",
		withToken("Accept", "application/yaml")); r.StatusCode != http.StatusOK {
		t.Error(r.Status)
	}
}

func TestRefuses(t *testing.T) {
	front := newProxy(t, func(http.ResponseWriter, *http.Request) { t.Error("it was asked") })
	for what, tc := range map[string]struct {
		method, path string
		header       http.Header
		code         int
	}{
		"no token":          {http.MethodGet, disk, nil, http.StatusUnauthorized},
		"another method":    {http.MethodPost, disk, withToken(), http.StatusMethodNotAllowed},
		"another path":      {http.MethodGet, "/metrics", withToken(), http.StatusNotFound},
		"a path for inside": {http.MethodGet, at + "e/internal/manifests/all", withToken(), http.StatusNotFound},
		"no such export":    {http.MethodGet, at + "x/volumes/root/disk.img", withToken(), http.StatusNotFound},
		"one that is not ready": {
			http.MethodGet, at + "pending/volumes/root/disk.img", withToken(), http.StatusServiceUnavailable,
		},
		"an API server that is away": {
			http.MethodGet, at + "broken/volumes/root/disk.img", withToken(), http.StatusServiceUnavailable,
		},
		"one without a certificate": {
			http.MethodGet, at + "none/volumes/root/disk.img", withToken(), http.StatusBadGateway,
		},
		"one whose server shows another certificate": {
			http.MethodGet, at + "other/volumes/root/disk.img", withToken(), http.StatusBadGateway,
		},
	} {
		if r, got := ask(t, front, tc.method, tc.path, tc.header); r.StatusCode != tc.code ||
			strings.Contains(got, "away") {
			t.Errorf("%s: %s %s", what, r.Status, got)
		}
	}
}

// What a tenant's server answers sets nothing for the host that all exports have, leads nobody with a token to another
// host, and runs in no browser.
func TestHostileServer(t *testing.T) {
	location, code := "", http.StatusOK
	front := newProxy(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Set-Cookie", "a=b")
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Content-Security-Policy", "default-src *")
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("NEL", `{"report_to":"g","max_age":31536000,"success_fraction":1}`)
		w.Header().Set("Report-To", `{"group":"g","max_age":31536000,"endpoints":[{"url":"https://evil.example.com"}]}`)
		w.Header().Set("WWW-Authenticate", "Basic")
		w.Header().Set("X-Anything", "a")
		w.Header().Set("Trailer", "X-After")
		if location != "" {
			w.Header().Set("Location", location)
		}
		w.WriteHeader(code)
		if code == http.StatusOK {
			_, _ = io.WriteString(w, "<script>")
			w.Header().Set("X-After", "b")
			w.Header().Set(http.TrailerPrefix+"Set-Cookie", "c=d")
		}
	})
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, front.URL+disk, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header = withToken()
	response, err := front.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.ReadAll(response.Body); err != nil { // the trailer comes after it
		t.Fatal(err)
	}
	headers := slices.Sorted(maps.Keys(response.Header))
	if strings.Join(headers, " ") != "Cache-Control Content-Security-Policy Content-Type Date X-Content-Type-Options" ||
		strings.Join(response.Header.Values("Content-Security-Policy"), "|") != "sandbox; default-src 'none'" ||
		len(response.Trailer) > 0 {
		t.Errorf("%v, at the end %v", response.Header, response.Trailer)
	}
	for location, code = range map[string]int{
		"https://evil.example.com/": 302, "//evil.example.com": 301, "/other": 307, `\\evil.example.com`: 302,
		"../../x": 302, "%zz": 308, "x:y": 302,
	} {
		if r, _ := ask(t, front, http.MethodGet, disk, withToken()); r.StatusCode != http.StatusBadGateway ||
			r.Header.Get("Location") != "" {
			t.Errorf("%s: %s %v", location, r.Status, r.Header)
		}
	}
	location, code = "sub/", http.StatusMovedPermanently
	if r, _ := ask(t, front, http.MethodGet, at+"e/volumes/share/dir/sub",
		withToken()); r.Header.Get("Location") != "sub/" {
		t.Errorf("a directory: %s %v", r.Status, r.Header)
	}
	location, code = "", http.StatusNotModified
	if r, _ := ask(t, front, http.MethodGet, disk, withToken()); r.StatusCode != http.StatusNotModified {
		t.Error(r.Status)
	}
}

// What a tenant's server says before its answer reaches nobody, and is bounded.
func TestEarlyAnswers(t *testing.T) {
	endless := false
	front := newProxy(t, func(w http.ResponseWriter, r *http.Request) {
		for n := 0; n < 1 || endless && r.Context().Err() == nil; n++ {
			w.Header().Set("Set-Cookie", "a=b")
			w.WriteHeader(http.StatusEarlyHints)
		}
		w.Header().Del("Set-Cookie")
		_, _ = io.WriteString(w, "disk")
	})
	get := func() (early []int, code int) {
		t.Helper()
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(code int, _ textproto.MIMEHeader) error {
				early = append(early, code)
				if len(early) > 100 {
					return errors.New("too many answers")
				}
				return nil
			},
		})
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, front.URL+disk, nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header = withToken()
		response, err := front.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		return early, response.StatusCode
	}
	if early, code := get(); code != http.StatusOK || len(early) > 0 {
		t.Errorf("%v %d", early, code)
	}
	endless = true
	if early, code := get(); code != http.StatusBadGateway || len(early) > 0 {
		t.Errorf("without end: %v %d", early, code)
	}
}

// A cut in the middle is one for the client, too.
func TestCut(t *testing.T) {
	front := newProxy(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10000000")
		_, _ = io.WriteString(w, strings.Repeat("begun", 100_000))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, front.URL+disk, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header = withToken()
	response, err := front.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if got, err := io.ReadAll(response.Body); err == nil {
		t.Errorf("%d bytes are taken for all", len(got))
	}
}

// Connections are kept for the parts of a download, and not for an export of the same name with another certificate.
func TestTransports(t *testing.T) {
	one, _ := pair(t)
	two, _ := pair(t)
	var kept transports
	first, err := kept.of(nil, host, one)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := kept.of(nil, host, one); err != nil || again != first {
		t.Errorf("another transport: %v", err)
	}
	if other, err := kept.of(nil, host, two); err != nil || other == first {
		t.Errorf("the same transport: %v", err)
	}
	for i := range 2 * maxTransports {
		if _, err := kept.of(nil, strings.Repeat("x", i), one); err != nil {
			t.Fatal(err)
		}
	}
	if len(kept.kept) > maxTransports {
		t.Errorf("%d are kept", len(kept.kept))
	}
}

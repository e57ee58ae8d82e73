package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/virtkit/virtkit/pkg/service/certs"
)

// The API server is asked once for what many requests want, and again for what may have changed.
func TestFind(t *testing.T) {
	phase, asked := "Pending", 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		if r.Header.Get("Authorization") != "Bearer word" {
			t.Errorf("says %q", r.Header.Get("Authorization"))
		}
		const base = "/apis/export.kubevirt.io/v1beta1/namespaces/ns/virtualmachineexports/"
		switch r.URL.Path {
		case base + "e":
			fmt.Fprintf(w, `{"metadata":{"name":"e","namespace":"ns"},"status":{"phase":%q,`+
				`"links":{"internal":{"cert":"IN"},"external":{"cert":"OUT","volumes":[{"name":"a",`+
				`"formats":[{"format":"raw","url":"https://vms.example.com/api/x"}]}]}}}}`,
				phase)
		case base + "bad":
			http.Error(w, "no", http.StatusForbidden)
		default:
			http.NotFound(w, r)
		}
	}))
	defer server.Close()
	now := time.Now()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("word\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	api := &API{
		Base: server.URL, Token: token, Client: server.Client(), Now: func() time.Time { return now },
		asking: make(chan struct{}, 1),
	}
	find := func(name string, wantAsked int) (*Export, error) {
		t.Helper()
		export, err := api.Find(t.Context(), "ns", name)
		if asked != wantAsked {
			t.Errorf("asked %d times, want %d", asked, wantAsked)
		}
		return export, err
	}
	if export, err := find("e", 1); err != nil || export.Ready {
		t.Errorf("%+v %v", export, err)
	}
	phase = "Ready"
	now = now.Add(freshAbsence)
	for range 2 {
		export, err := find("e", 2)
		if err != nil || !export.Ready || export.Authority != "IN" || export.Certificate != "OUT" ||
			export.Address != "https://vms.example.com"+at+"e" {
			t.Errorf("%+v %v", export, err)
		}
	}
	now = now.Add(fresh)
	if _, err := find("e", 3); err != nil {
		t.Error(err)
	}
	for range 2 {
		if _, err := find("none", 4); !errors.Is(err, errAbsent) {
			t.Error(err)
		}
	}
	for n := range 2 { // an error is no answer
		if _, err := find("bad", 5+n); err == nil || errors.Is(err, errAbsent) {
			t.Error(err)
		}
	}
	for n := range 2 * maxFound {
		_, _ = api.Find(t.Context(), "ns", fmt.Sprint(n)) // there is none
	}
	if len(api.found) > maxFound {
		t.Errorf("%d are remembered", len(api.found))
	}
}

// A certificate that was renewed is used, and the last good one while there is none.
func TestCertificate(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	c := &certificate{
		cert: filepath.Join(dir, "tls.crt"), key: filepath.Join(dir, "tls.key"), now: func() time.Time { return now },
	}
	if _, err := c.get(nil); err == nil {
		t.Fatal("there is one")
	}
	write := func(name string) {
		t.Helper()
		authority, err := certs.NewAuthority(now, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		pair, err := authority.Issue(certs.Leaf{CommonName: name}, now, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		key, err := pair.KeyPEM()
		if err != nil {
			t.Fatal(err)
		}
		for file, data := range map[string][]byte{c.cert: pair.CertificatePEM(), c.key: key} {
			if err := os.WriteFile(file, data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	is := func(want string) {
		t.Helper()
		got, err := c.get(nil)
		if err != nil || got.Leaf.Subject.CommonName != want {
			t.Errorf("%v %v, want %s", got, err, want)
		}
	}
	write("one")
	is("one")
	write("two")
	is("one")
	now = now.Add(rereads)
	is("two")
	if err := os.WriteFile(c.key, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	now = now.Add(rereads)
	is("two")
}

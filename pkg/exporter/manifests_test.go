package exporter

import (
	"encoding/base64"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/exports"
)

const ofVM = `{"apiVersion":"v1","items":[
{"kind":"ConfigMap","metadata":{"name":"export-ca-cm-exp"},"data":{"ca.pem":"INSIDE"}},
{"kind":"VirtualMachine","metadata":{"name":"vm"},"spec":{"n":12345678901234567890,"dataVolumeTemplates":[
 {"spec":{"source":{"http":{"certConfigMap":"export-ca-cm-exp","url":"https://virt-export-exp.ns.svc/volumes/a/disk.img.gz"}}}},
 {"spec":{"source":{"http":{"certConfigMap":"mine","url":"https://virt-export-exp.ns.svc.example.com/x"}}}}]}}],"kind":"List"}`

// Who asks through virt-exportproxy gets the addresses and the certificate that it says, and no other of the VM's
// addresses changes; who asks past it gets none.
func TestExternalManifests(t *testing.T) {
	e := newExport(t)
	e.write("manifests/all.json", ofVM)
	const all, outside = names.ExportExternal + "manifests/all", "https://vms.example.com/api/x/exp"
	asked := []string{
		names.HeaderExportAddress + ": " + outside,
		names.HeaderExportAuthority + ": " + base64.StdEncoding.EncodeToString([]byte("OUTSIDE\n")),
	}
	for kind, asJSON := range map[string]bool{typeJSON: true, typeYAML: false} {
		r := e.get(all, append([]string{"Accept: " + kind}, asked...)...)
		got := body(t, r)
		if r.StatusCode != http.StatusOK || r.Header.Get("Content-Type") != kind ||
			strings.HasPrefix(got, "{") != asJSON || !strings.Contains(got, outside+"/volumes/a/disk.img.gz") ||
			!strings.Contains(got, "https://virt-export-exp.ns.svc.example.com/x") ||
			!strings.Contains(got, "12345678901234567890") || !strings.Contains(got, "OUTSIDE") ||
			strings.Contains(got, "INSIDE") || strings.Count(got, "export-ca-cm-exp") != 2 {
			t.Errorf("%s: %d\n%s", kind, r.StatusCode, got)
		}
	}
	// A certificate that every system knows needs no ConfigMap.
	got := body(t, e.get(all, asked[0]))
	if strings.Contains(got, "export-ca-cm-exp") || strings.Contains(got, `"kind": "ConfigMap"`) ||
		!strings.Contains(got, `"mine"`) {
		t.Error(got)
	}
	if r := e.get(all); r.StatusCode != http.StatusNotFound {
		t.Errorf("past the proxy: %d %s", r.StatusCode, body(t, r))
	}
	if r := e.get(names.ExportExternal + "manifests/secret"); !strings.Contains(body(t, r), "header-secret-exp") {
		t.Error("no Secret outside")
	}
	if got := body(t, e.get(names.ExportManifests)); got != ofVM {
		t.Errorf("inside: %s", got)
	}
}

// Where nobody knows who signed the certificate of the entrance, its authorities are all that the cluster has.
func TestManyAuthorities(t *testing.T) {
	e := newExport(t)
	e.write("manifests/all.json", ofVM)
	server := httptest.NewUnstartedServer(nil)
	server.Config = newServer(e, slog.New(slog.DiscardHandler))
	server.Start()
	defer server.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		server.URL+names.ExportExternal+"manifests/all", nil)
	if err != nil {
		t.Fatal(err)
	}
	authorities := strings.Repeat("A", exports.MaxCertificate)
	request.Header.Set(names.HeaderExportToken, token)
	request.Header.Set(names.HeaderExportAddress, "https://vms.example.com/api/x/exp")
	request.Header.Set(names.HeaderExportAuthority, base64.StdEncoding.EncodeToString([]byte(authorities)))
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK || !strings.Contains(string(got), authorities) {
		t.Errorf("%s, %d bytes, %v", response.Status, len(got), err)
	}
}

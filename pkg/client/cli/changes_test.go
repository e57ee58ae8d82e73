package cli

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// Only an accepted request that leaves something changed is a change, and only the first is told of.
func TestChanges(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("refuse") != "" {
			w.WriteHeader(http.StatusConflict)
		}
	}))
	defer server.Close()
	f := NewFactory("virtctl", NoStreams(), func(string) string { return "" })
	told := 0
	f.OnChange(func(by *Factory) {
		if told++; by != f {
			t.Error("another factory's change")
		}
	})
	client := &http.Client{Transport: noticing{http.DefaultTransport, f}}
	send := func(method, path string) {
		r, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
	}
	for _, line := range [][2]string{
		{"GET", "/api/v1/nodes/n"},
		{"POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"},
		{"POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews"},
		{"PUT", "/apis/subresources.kubevirt.io/v1/namespaces/x/expand-vm-spec"},
		{"DELETE", "/api/v1/nodes/n?dryRun=All"},
		{"PUT", "/api/v1/nodes/n?refuse=yes"},
	} {
		if send(line[0], line[1]); told != 0 || f.Unjournaled() != nil {
			t.Fatalf("%s changes something", line)
		}
	}
	for range 2 {
		if send("PATCH", "/api/v1/nodes/n"); told != 1 || f.Silent().Unjournaled() != f {
			t.Fatalf("told %d times", told)
		}
	}
	if f.Silent().Journaled(); f.Unjournaled() != nil {
		t.Error("what is journaled is not")
	}
}

package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// mostStatus bounds what is read of an answer that something was not found, bytes.
const mostStatus = 64 << 10

// locating wraps next so that a 404 of the API server says in which namespace the object was looked for. The server's
// own words name the object alone, and who is in the wrong namespace sees no difference.
func locating(next http.RoundTripper) http.RoundTripper { return locator{next} }

type locator struct{ next http.RoundTripper }

// WrappedRoundTripper lets client-go find who can cancel a request.
func (l locator) WrappedRoundTripper() http.RoundTripper { return l.next }

// RoundTrip implements http.RoundTripper.
func (l locator) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := l.next.RoundTrip(r)
	if err != nil || response.StatusCode != http.StatusNotFound || response.Body == nil {
		return response, err
	}
	namespace := namespaceOf(r.URL.Path)
	if namespace == "" {
		return response, nil
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, mostStatus))
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return nil, err
	}
	body = located(body, namespace)
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	response.Header.Del("Content-Length")
	return response, nil
}

// namespaceOf returns the namespace in a path of the API; empty for an object of the cluster, such as the namespace
// itself.
func namespaceOf(path string) string {
	words := strings.Split(strings.Trim(path, "/"), "/")
	for i, word := range words {
		// /api/v1/namespaces/NS/RESOURCE, /apis/GROUP/VERSION/namespaces/NS/RESOURCE, perhaps behind a prefix.
		if word == "namespaces" && i+2 < len(words) {
			return words[i+1]
		}
	}
	return ""
}

// located adds the namespace to a Status that says that an object was not found; anything else stays as it is.
func located(body []byte, namespace string) []byte {
	var status metav1.Status
	if json.Unmarshal(body, &status) != nil || status.Reason != metav1.StatusReasonNotFound ||
		!strings.HasSuffix(status.Message, " not found") {
		return body
	}
	if d := status.Details; d == nil || d.Name == "" || ofCluster(d.Kind) {
		return body
	}
	status.Message += fmt.Sprintf(" in namespace %q", namespace)
	out, err := json.Marshal(status)
	if err != nil {
		return body
	}
	return out
}

// ofCluster reports whether objects of a kind, as a Status names it, have no namespace.
func ofCluster(kind string) bool {
	kind = strings.ToLower(kind)
	switch strings.TrimSuffix(kind, "s") {
	case "node", "namespace", "persistentvolume", "storageclasse", "storageclass", "volumesnapshotclasse",
		"volumesnapshotclass", "customresourcedefinition", "clusterrole", "migrationpolicie", "migrationpolicy":
		return true
	}
	return strings.HasPrefix(kind, "virtualmachinecluster")
}

//go:build e2e

package e2e

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// runHook does what Velero does before (pre) and after (post) it snapshots the volumes of a pod: it runs the command of
// the pod's annotations.
func (g *guest) runHook(t *testing.T, when string) {
	t.Helper()
	pod := g.pod(t)
	hook := when + ".hook.backup.velero.io/"
	options := &corev1.PodExecOptions{Container: pod.Annotations[hook+"container"], Stdout: true, Stderr: true}
	if err := json.Unmarshal([]byte(pod.Annotations[hook+"command"]), &options.Command); err != nil {
		t.Fatalf("the pod's annotations are %v: %v", pod.Annotations, err)
	}
	address := g.Kube.CoreV1().RESTClient().Get().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).
		SubResource("exec").VersionedParams(options, scheme.ParameterCodec).URL()
	output, ended := g.exec(t, address)
	t.Logf("%v: %s", options.Command, output)
	if ended.Status != metav1.StatusSuccess {
		t.Fatalf("%v: %+v", options.Command, ended)
	}
}

// exec returns what a program in a pod has written, and how it has ended.
func (g *guest) exec(t *testing.T, address *url.URL) (output string, ended metav1.Status) {
	t.Helper()
	tlsConfig, err := rest.TLSConfigFor(g.Config)
	if err != nil {
		t.Fatal(err)
	}
	address.Scheme = "wss"
	dialer := websocket.Dialer{
		TLSClientConfig: tlsConfig, Subprotocols: []string{"v4.channel.k8s.io"}, HandshakeTimeout: 10 * time.Second,
	}
	ws, _, err := dialer.DialContext(t.Context(), address.String(), nil) //nolint:bodyclose // the websocket library has read and closed it
	if err != nil {
		t.Fatalf("exec: %v", err)
	}
	defer ws.Close()
	if err := ws.SetReadDeadline(time.Now().Add(patience * 60 * time.Second)); err != nil {
		t.Fatal(err)
	}
	const stdout, stderr, status = 1, 2, 3 // the first byte of each message
	var said strings.Builder
	for {
		_, message, err := ws.ReadMessage()
		if err != nil || len(message) == 0 {
			t.Fatalf("exec: %q, %v, after %q", message, err, said.String())
		}
		switch message[0] {
		case stdout, stderr:
			said.Write(message[1:])
		case status:
			if err := json.Unmarshal(message[1:], &ended); err != nil {
				t.Fatal(err)
			}
			return said.String(), ended
		}
	}
}

//go:build e2e

package e2e

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/names"
)

// Posts from a node whose bodies do not end stop no VM from being admitted, and on virt-local, whose API server shows
// who it is, webhooks answer nobody else.
func TestWebhooksUnderUnfinishedPosts(t *testing.T) {
	c := theCluster
	from := c.clientInNode(t, c.componentPods(t, names.VirtHandler)[0])
	dial := from.Transport.(*http.Transport).DialContext
	insecure := &tls.Config{InsecureSkipVerify: true} //nolint:gosec // an attacker does not care
	for _, pod := range c.componentPods(t, names.VirtAPI) {
		address := net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(names.PortAPI))
		for range 260 {
			conn, err := dial(t.Context(), "tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
				t.Fatal(err)
			}
			_, err = fmt.Fprint(tls.Client(conn, insecure),
				"POST /validate/virtualmachines HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{")
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	ns := c.namespace(t, "restricted")
	for i := range 10 {
		vm := newVM(ns, fmt.Sprintf("admitted-%d", i), v1.RunStrategyHalted)
		if err := c.Client.Create(t.Context(), vm, client.DryRunAll); err != nil {
			t.Errorf("a VM was not admitted: %v", err)
		}
	}

	transport := from.Transport.(*http.Transport).Clone()
	transport.TLSClientConfig = insecure
	stranger := &http.Client{Timeout: 10 * time.Second, Transport: transport}
	address := net.JoinHostPort(c.componentPods(t, names.VirtAPI)[0].Status.PodIP, strconv.Itoa(names.PortAPI))
	eventually(t, 3*time.Minute, "webhooks answer the API server only", func() string {
		response, err := stranger.Post("https://"+address+"/validate/virtualmachines", "application/json",
			bytes.NewReader([]byte("{}")))
		if err != nil {
			return err.Error()
		}
		response.Body.Close()
		if response.StatusCode != http.StatusUnauthorized {
			return response.Status
		}
		return ""
	})
}

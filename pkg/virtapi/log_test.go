package virtapi

import (
	"io"
	"net/http"
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

// The server waits for answers before it drains the streams, so one without an end must end by itself.
func TestFollowedLogEndsWithTheServer(t *testing.T) {
	c := newCluster(t, pairOf(v1.RunStrategyAlways, instance(v1.Running)),
		func(w http.ResponseWriter, r *http.Request) {
			const followed = "/v1/namespaces/default/virtualmachineinstances/vm/log/serial?follow=true"
			if got := r.URL.RequestURI(); got != followed {
				t.Errorf("virt-handler is asked for %s", got)
			}
			_, _ = io.WriteString(w, "x")
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			<-r.Context().Done()
		})
	response, err := http.Get(c.url +
		"/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/vm/log?follow=true")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.ReadFull(response.Body, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	c.q.streams.stop()
	_, _ = io.ReadAll(response.Body) // ends, one way or the other
}

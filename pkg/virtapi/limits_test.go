package virtapi

import (
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/stream/quota"
)

// A user who opens streams without end is told to wait, before the upgrade and without asking the node.
func TestStreamsBeyondTheLimits(t *testing.T) {
	asked := 0
	c := newCluster(t, pairOf(v1.RunStrategyAlways, instance(v1.Running)),
		func(w http.ResponseWriter, r *http.Request) {
			asked++
			echoes(w, r)
		})
	c.q.streams.quota.Limits = quota.Limits{PerVM: 2}
	for range 2 {
		if _, err := c.dial("virtualmachineinstances/vm/portforward/22", nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"portforward/22", "console", "vnc"} {
		if _, err := c.dial("virtualmachineinstances/vm/"+path, nil); !apierrors.IsTooManyRequests(err) {
			t.Errorf("%s: %v", path, err)
		}
	}
	r, err := http.NewRequest(http.MethodGet,
		c.url+"/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/vm/log?follow=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusTooManyRequests || response.Header.Get("Retry-After") == "" {
		t.Errorf("a log: %s, Retry-After %q", response.Status, response.Header.Get("Retry-After"))
	}
	if asked != 2 {
		t.Errorf("the node was asked %d times", asked)
	}
}

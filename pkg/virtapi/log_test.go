package virtapi

import (
	"io"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// A log that never comes is refused at once, as a bad request: clients that follow one try again after a conflict.
func TestNoSerialLog(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*v1.Devices)
		source string
		want   string
	}{
		"no console": {
			func(d *v1.Devices) { d.AutoattachSerialConsole = new(false) }, "serial",
			"The guest has no serial log. spec.domain.devices.autoattachSerialConsole is false",
		},
		"not kept": {
			func(d *v1.Devices) { d.LogSerialConsole = new(false) }, "serial",
			"The guest has no serial log. spec.domain.devices.logSerialConsole is false",
		},
		"QEMU's":  {func(d *v1.Devices) { d.LogSerialConsole = new(false) }, "qemu", ""},
		"is kept": {func(*v1.Devices) {}, "serial", ""},
	} {
		vmi := instance(v1.Running)
		tc.change(&vmi.Spec.Domain.Devices)
		if err := hasLog(vmi, tc.source); tc.want == "" && err != nil ||
			tc.want != "" && (!apierrors.IsBadRequest(err) || err.Error() != tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

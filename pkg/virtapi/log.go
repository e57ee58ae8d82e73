package virtapi

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/emicklei/go-restful/v3"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/vm/peripherals"
)

// log sends a log of the guest's as virt-handler does, and as it grows if it is to be followed.
func (q *requests) log(r *restful.Request, w *restful.Response) error {
	source := r.QueryParameter("source")
	switch source {
	case "":
		source = "serial"
	case "serial", "qemu":
	default:
		return badRequest(fmt.Sprintf("source: %q is not serial or qemu", source))
	}
	vmi, err := q.machines.vmi(r.Request.Context(), r.PathParameter("namespace"), r.PathParameter("name"))
	if err != nil {
		return err
	}
	if err := hasLog(vmi, source); err != nil {
		return err
	}
	query := url.Values{}
	for _, key := range []string{"tail", "since", "follow"} {
		if value := r.QueryParameter(key); value != "" {
			query.Set(key, value)
		}
	}
	target, err := q.nodes.target(vmi, "log/"+source, query)
	if err != nil {
		return err
	}
	user := ""
	if info, ok := apirequest.UserFrom(r.Request.Context()); ok {
		user = info.GetName()
	}
	release, err := q.streams.take(user, target)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithCancel(r.Request.Context())
	defer cancel()
	control := http.NewResponseController(w.ResponseWriter)
	within := &patience{control: control}
	defer within.end()
	defer context.AfterFunc(q.streams.serving, func() {
		cancel()
		within.over() // for a client that does not read
	})()
	header := http.Header{}
	if printable(user) {
		header.Set("X-Remote-User", user)
	}
	if last := r.HeaderParameter(names.HeaderLogResume); last != "" {
		header.Set(names.HeaderLogResume, last)
	}
	response, err := q.answer(ctx, target, vmi.Status.NodeName, header)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	buffer := make([]byte, 32<<10)
	for {
		n, err := response.Body.Read(buffer)
		if n > 0 {
			within.renew(stream.Stall)
			if _, err := w.Write(buffer[:n]); err != nil {
				return nil // the client has gone, and the answer with it
			}
			if err := control.Flush(); err != nil {
				return nil
			}
		}
		if err != nil {
			return nil // the end, or virt-handler's: a client that follows asks again
		}
	}
}

// hasLog refuses the log of a guest that has none, however long one waits for it.
func hasLog(vmi *v1.VirtualMachineInstance, source string) error {
	if devices := &vmi.Spec.Domain.Devices; source == "serial" && !peripherals.SerialLog(devices) {
		field := "logSerialConsole"
		if !peripherals.SerialConsole(devices) {
			field = "autoattachSerialConsole"
		}
		return badRequest(fmt.Sprintf("The guest has no serial log. spec.domain.devices.%s is false", field))
	}
	return nil
}

// patience bounds how long a client may take for what is written to it.
type patience struct {
	control *http.ResponseController

	mu      sync.Mutex
	stopped bool
}

// renew gives the client so long for the next write.
func (p *patience) renew(limit time.Duration) { p.set(time.Now().Add(limit), false) }

// over ends a write at once, and those that follow.
func (p *patience) over() { p.set(time.Now(), true) }

// end lets the connection be used for other requests.
func (p *patience) end() { p.set(time.Time{}, true) }

func (p *patience) set(deadline time.Time, stop bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped && !stop {
		return
	}
	p.stopped = stop
	_ = p.control.SetWriteDeadline(deadline) // a connection that is gone, which the write finds, or one of a test
}

package virtapi

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/emicklei/go-restful/v3"

	"github.com/virtkit/virtkit/pkg/names"
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
	ctx, cancel := context.WithCancel(r.Request.Context())
	defer cancel()
	control := http.NewResponseController(w.ResponseWriter)
	defer context.AfterFunc(q.streams.serving, func() {
		cancel()
		_ = control.SetWriteDeadline(time.Now()) // for a client that does not read
	})()
	header := http.Header{}
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

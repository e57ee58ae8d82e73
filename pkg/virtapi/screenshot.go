package virtapi

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/emicklei/go-restful/v3"
)

// screenshotTimeout bounds a screenshot; it is more than virt-handler gives the launcher.
const screenshotTimeout = 35 * time.Second

// screenshot answers with a PNG of the guest's screen, as virt-handler sends it.
func (q *requests) screenshot(r *restful.Request, w *restful.Response) error {
	ctx, cancel := context.WithTimeout(r.Request.Context(), screenshotTimeout)
	defer cancel()
	vmi, err := q.machines.vmi(ctx, r.PathParameter("namespace"), r.PathParameter("name"))
	if err != nil {
		return err
	}
	if err := hasGraphics(vmi); err != nil {
		return err
	}
	query := url.Values{}
	if r.QueryParameter("moveCursor") == "true" {
		query.Set("moveCursor", "true")
	}
	target, err := q.nodes.target(vmi, "vnc/screenshot", query)
	if err != nil {
		return err
	}
	response, err := q.answer(ctx, target, vmi.Status.NodeName, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	w.Header().Set("Content-Type", "image/png")
	if _, err := io.Copy(w, response.Body); err != nil {
		panic(http.ErrAbortHandler) // so that the client does not take a half for the whole
	}
	return nil
}

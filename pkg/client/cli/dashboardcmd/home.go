package dashboardcmd

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/tui/page"
)

// home is the namespace that is shown. To ask for it is also how the dashboard finds out whether the server is there.
type home struct {
	client  *client.Client
	name    string // "" for all namespaces
	changed func()

	mu    sync.Mutex
	phase page.NamespacePhase
}

// ask asks the server for the namespace; where all are shown, for its version.
func (h *home) ask(ctx context.Context) error {
	if h.name == "" {
		return h.client.Answers(ctx)
	}
	phase, err := h.client.NamespacePhase(ctx, h.name)
	switch {
	case apierrors.IsNotFound(err):
		h.is(page.NamespaceGone)
	case phase == corev1.NamespaceTerminating:
		h.is(page.NamespaceDeleting)
	case err == nil || apierrors.IsForbidden(err): // who may not read it is believed
		h.is(page.NamespaceThere)
	}
	return err
}

func (h *home) is(phase page.NamespacePhase) {
	h.mu.Lock()
	changed := h.phase != phase
	h.phase = phase
	h.mu.Unlock()
	if changed {
		h.changed()
	}
}

// state returns the namespace's phase, as it was heard last.
func (h *home) state() page.NamespacePhase {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.phase
}

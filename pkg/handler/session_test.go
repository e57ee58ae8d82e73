package handler

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"

	"github.com/virtkit/virtkit/pkg/handler/streams"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

// A launcher that a guest has taken over may say anything in any order.
func TestLauncherContradictsItself(t *testing.T) {
	s := &session{
		log: slog.New(slog.NewTextHandler(io.Discard, nil)), changed: func(bool) {}, outgoingNews: make(chan struct{}),
	}
	s.guest, s.gone = context.WithCancelCause(t.Context())
	migrated := &launcherpb.GuestState{Lifecycle: launcherpb.Lifecycle_LIFECYCLE_MIGRATED}
	s.saw(migrated)
	s.saw(&launcherpb.GuestState{Lifecycle: launcherpb.Lifecycle_LIFECYCLE_RUNNING})
	s.saw(migrated)
	s.saw(&launcherpb.GuestState{Lifecycle: launcherpb.Lifecycle_LIFECYCLE_SHUTOFF})
	if err := context.Cause(s.guest); !errors.Is(err, streams.ErrMoved) {
		t.Errorf("the guest is gone: %v", err)
	}
}

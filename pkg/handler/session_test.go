package handler

import (
	"io"
	"log/slog"
	"testing"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

// A launcher that a guest has taken over may say anything in any order.
func TestLauncherContradictsItself(t *testing.T) {
	s := &session{
		log: slog.New(slog.NewTextHandler(io.Discard, nil)), changed: func(bool) {},
		moved: make(chan struct{}), departing: make(chan struct{}),
	}
	migrated := &launcherpb.GuestState{Lifecycle: launcherpb.Lifecycle_LIFECYCLE_MIGRATED}
	s.saw(migrated)
	s.saw(&launcherpb.GuestState{Lifecycle: launcherpb.Lifecycle_LIFECYCLE_RUNNING})
	s.saw(migrated)
	select {
	case <-s.moved:
	default:
		t.Error("the guest has not moved")
	}
}

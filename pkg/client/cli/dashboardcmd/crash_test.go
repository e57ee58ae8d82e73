package dashboardcmd

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/tui/page"
)

// TestCrashEndsTransfers: a panic of a feed ends the program when what a transfer has made is deleted, not before.
func TestCrashEndsTransfers(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	streams := cli.NoStreams()
	streams.ErrOut = &said
	f := cli.NewFactory("virtctl", streams, func(string) string { return "" })
	s := &session{options: &Options{Factory: f}}
	s.transfers = page.NewTransfers(time.Now, func() {})
	began, cleaned := make(chan struct{}), false
	task := s.transfers.Task(&page.Transfer{What: "export of VM prod/db"}, "virtctl export db",
		func(ctx context.Context, _ *page.Transfer) error {
			close(began)
			<-ctx.Done()
			cleaned = true
			return ctx.Err()
		})
	task.Begin()
	go func() { _ = task.Do(t.Context()) }() // that it was cancelled is in what is said
	<-began
	func() {
		defer func() {
			if p := recover(); p != "the feed" {
				t.Errorf("%v is reported", p)
			}
		}()
		s.guarded(func() { panic("the feed") })()
	}()
	if !cleaned {
		t.Error("the program ends before the export has")
	}
	if !strings.Contains(said.String(), "the export of VM prod/db was cancelled") {
		t.Errorf("it says %q", said.String())
	}
}

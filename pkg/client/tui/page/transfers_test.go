package page

import (
	"context"
	"testing"
	"time"

	"github.com/virtkit/virtkit/pkg/client/tui/theme"
)

// TestTransferThatWaitsIsNotDone: what has not begun to move bytes is not shown as done.
func TestTransferThatWaitsIsNotDone(t *testing.T) {
	t.Parallel()
	now := func() time.Time { return time.Unix(1000, 0) }
	list, transfer := NewTransfers(now, func() {}), &Transfer{What: "export of VM prod/web"}
	list.Task(transfer, "virtctl export web", func(context.Context, *Transfer) error { return nil }).Begin()
	done := func() string {
		for _, c := range transferColumns(&World{Theme: theme.New(theme.Options{NoColour: true})}) {
			if c.Title == "DONE" {
				return c.Cell(transfer, now()).Text
			}
		}
		t.Fatal("there is no such column")
		return ""
	}
	transfer.Report("its pod starts")
	if got := done(); got != "" {
		t.Errorf("while its pod starts, %s is done", got)
	}
	transfer.Show("root", 1, 4)
	if got := done(); got != "25%" {
		t.Errorf("of a quarter, %q is done", got)
	}
}

package page

import (
	"strings"
	"testing"

	"github.com/virtkit/virtkit/pkg/client/store"
)

// Who deletes a restore that could be undone is told so.
func TestConsequenceOfDeletingRestore(t *testing.T) {
	for want, row := range map[string]*store.Snapshot{
		"cannot be undone any more": {Resource: store.Restores, Ended: true, Kept: true},
		"only this record goes":     {Resource: store.Restores, Ended: true},
		"it is under way":           {Resource: store.Restores},
	} {
		if got := (saved{}).consequence(row); !strings.Contains(got, want) {
			t.Errorf("%+v: %q", row, got)
		}
	}
}

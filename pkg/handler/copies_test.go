package handler

import (
	"errors"
	"testing"

	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/vm/volumemigration"
)

// A launcher that does not know where hotplugged claims are is not asked to copy their disks.
func TestOldLauncherCopies(t *testing.T) {
	fixed := []volumemigration.Disk{{Volume: "root"}}
	plugged := []volumemigration.Disk{{Volume: "root"}, {Volume: "data", Plugged: true}}
	for _, c := range []struct {
		guest *launcherpb.GuestState
		disks []volumemigration.Disk
		old   bool
	}{
		{&launcherpb.GuestState{}, nil, false},
		{&launcherpb.GuestState{}, fixed, true},
		{&launcherpb.GuestState{CopiesDisks: true}, fixed, false},
		{&launcherpb.GuestState{CopiesDisks: true}, plugged, true},
		{&launcherpb.GuestState{CopiesDisks: true, CopiesPluggedDisks: true}, plugged, false},
	} {
		if err := copies(c.guest, c.disks); errors.Is(err, errOldLauncher) != c.old {
			t.Errorf("%v of %v: %v", c.disks, c.guest, err)
		}
	}
}

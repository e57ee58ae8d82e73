package hypervisor

import (
	"errors"
	"fmt"
	"testing"
)

func TestWhyFailed(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{
			errors.New("internal error: client socket is closed"),
			"the connection between the libvirtd of both nodes was lost (client socket is closed)",
		},
		{fmt.Errorf("migrate: %w", ErrNoDomain), "the guest's QEMU on the target node has ended"},
		{errors.New("internal error: QEMU unexpectedly closed the monitor"), "QEMU unexpectedly closed the monitor"},
	} {
		if got := FailureReason(tc.err); got != tc.want {
			t.Errorf("%v: %s", tc.err, got)
		}
	}
}

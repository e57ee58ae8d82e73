package launcher

import (
	"context"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/vm/filesystems"
)

const (
	// socketPause is the pause between looks for a socket, socketsTimeout how long all of them may take: they are
	// there before the launcher runs, unless virtiofsd has failed and is started again.
	socketPause    = 20 * time.Millisecond
	socketsTimeout = 20 * time.Second
)

// awaitFilesystems waits for the other containers of the pod to serve what the guest shares.
func awaitFilesystems(ctx context.Context, spec *v1.VirtualMachineInstanceSpec) error {
	if !filesystems.Any(&spec.Domain) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, socketsTimeout)
	defer cancel()
	tick := time.NewTicker(socketPause)
	defer tick.Stop()
	for i := range spec.Domain.Devices.Filesystems {
		f := &spec.Domain.Devices.Filesystems[i]
		if f.Virtiofs == nil {
			continue
		}
		if err := awaitSocket(ctx, filesystems.Socket(f.Name), tick.C); err != nil {
			return status.Error(codes.FailedPrecondition, fmt.Sprintf(
				"filesystem %q: virtiofsd does not serve it: %v; see the log of container %s of the launcher's pod",
				f.Name, err, filesystems.Container(f.Name)))
		}
	}
	return nil
}

// awaitSocket waits for a file. It is not connected to: virtiofsd serves one client, and ends with it.
func awaitSocket(ctx context.Context, path string, tick <-chan time.Time) error {
	for {
		_, err := os.Stat(path)
		if err == nil {
			return nil
		}
		select {
		case <-tick:
		case <-ctx.Done():
			return err
		}
	}
}

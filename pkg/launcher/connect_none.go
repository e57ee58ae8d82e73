//go:build !(cgo && libvirt_dlopen)

package launcher

import (
	"context"
	"errors"

	"github.com/virtkit/virtkit/pkg/hypervisor"
)

// connect is what a binary has that was built without libvirt.
func connect(context.Context, string) (hypervisor.Connection, error) {
	return nil, errors.New("this virt-launcher was built without libvirt; build it with CGO_ENABLED=1 -tags launcher,libvirt_dlopen")
}

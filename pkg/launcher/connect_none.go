//go:build !(cgo && libvirt_dlopen)

package launcher

import (
	"context"
	"errors"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
)

var errNoLibvirt = errors.New("this virt-launcher was built without libvirt; " +
	"build it with CGO_ENABLED=1 -tags launcher,libvirt_dlopen")

// connect and probe replace libvirt's in a binary that was built without libvirt.
func connect(context.Context, string) (hypervisor.Connection, error) { return nil, errNoLibvirt }

func probe(context.Context, string, string) (string, error) { return "", errNoLibvirt }

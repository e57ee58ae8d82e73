//go:build cgo && libvirt_dlopen

package libvirt

import (
	"context"
	"errors"
	"fmt"

	"libvirt.org/go/libvirt"
)

// Probe has the session daemon at socket find out what an emulator can do, as it does before the first domain, and
// store that in its cache. The domain capabilities that it returns are KVM's where there is KVM. As for Connect, ctx
// only decides whether to begin.
func Probe(ctx context.Context, socket, emulator string) (domain string, err error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	conn, err := libvirt.NewConnect("qemu+unix:///session?socket=" + socket)
	if err != nil {
		return "", fmt.Errorf("connect to libvirt: %w", err)
	}
	defer func() {
		_, closing := conn.Close()
		err = errors.Join(err, closing)
	}()
	domain, err = conn.GetDomainCapabilities(emulator, "", "", "", 0)
	if err != nil {
		return "", fmt.Errorf("probe %s: %w", emulator, err)
	}
	return domain, nil
}

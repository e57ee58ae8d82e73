//go:build cgo && libvirt_dlopen

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"io"

	"libvirt.org/go/libvirt"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
)

// maxScreenshot bounds what QEMU may give, bytes: more than a raw picture of an 8K screen.
const maxScreenshot = 160 << 20

// Screenshot implements hypervisor.Connection. QEMU writes the picture to a file of libvirt's, which comes as a stream.
func (c *connection) Screenshot(ctx context.Context, w io.Writer) error {
	return c.with(func(d *libvirt.Domain) error {
		stream, err := c.conn.NewStream(0)
		if err != nil {
			return err
		}
		err = screenshot(ctx, d, stream, w)
		if err != nil {
			return errors.Join(err, stream.Abort(), stream.Free())
		}
		return errors.Join(stream.Finish(), stream.Free())
	})
}

func screenshot(ctx context.Context, d *libvirt.Domain, stream *libvirt.Stream, w io.Writer) error {
	kind, err := d.Screenshot(stream, 0, 0)
	var refused libvirt.Error
	if errors.As(err, &refused) && refused.Code == libvirt.ERR_OPERATION_INVALID ||
		errors.As(err, &refused) && refused.Code == libvirt.ERR_INVALID_ARG {
		return fmt.Errorf("%w: %s", hypervisor.ErrNoScreen, refused.Message)
	}
	if err != nil {
		return err
	}
	if kind != "image/png" {
		return fmt.Errorf("libvirt gives the screen as %s; PNG is needed", kind)
	}
	buf := make([]byte, 64<<10)
	for total := 0; ; {
		n, err := stream.Recv(buf)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if n < 0 {
			return errors.New("libvirt's stream stopped in the middle")
		}
		if total += n; total > maxScreenshot {
			return fmt.Errorf("the picture has more than %d bytes", maxScreenshot)
		}
		if _, err := w.Write(buf[:n]); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

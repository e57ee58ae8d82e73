package uploader

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/virtkit/virtkit/pkg/vm/disk"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// openImage opens the disk of the container image, and returns its size, bytes.
func openImage(o Options) (*os.File, int64, error) {
	image, size, err := disk.OpenContainerDisk(o.ImageDirectory, o.Image, o.ImagePath)
	if err == nil && size == 0 {
		err = errors.Join(fmt.Errorf("container disk %s: its disk is empty", o.Image), image.Close())
	}
	return image, size, err
}

// takeImage takes the disk of the container image, as receive takes the bytes of a client.
func (u *upload) takeImage() {
	defer u.image.Close()
	in := io.NewSectionReader(u.image, 0, u.Request.Size)
	sum, buffer, left := sha256.New(), make([]byte, chunk), u.Request.Size
	for left > 0 {
		if u.now().Phase != uploads.Receiving {
			return // the upload has ended
		}
		n, err := in.Read(buffer)
		if n == 0 {
			u.fail(fmt.Errorf("read the disk of container image %s: %w", u.Image, err))
			return
		}
		u.mu.Lock()
		u.heard = time.Now()
		u.mu.Unlock()
		_, _ = sum.Write(buffer[:n]) // never fails
		if err := u.intake.take(buffer[:n]); err != nil {
			u.fail(err)
			return
		}
		left -= int64(n)
	}
	u.intake.finish(hex.EncodeToString(sum.Sum(nil)))
	u.change(func(s *uploads.State) { s.Phase = uploads.Converting })
}

package launcher

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/virtkit/virtkit/pkg/vm/disk"
)

// The images of cloud-init and sysprep are made of Secrets and ConfigMaps that may have changed since, or be gone. The
// guest keeps what it has: the source launcher sends its images to the target, before libvirt begins:
//
//	source   {"volume":"seed","size":381440} and the bytes, for each; then {}
//	target   "ok", or what is wrong

const (
	// imagesTimeout bounds the exchange.
	imagesTimeout = 30 * time.Second
	// maxImageHeader and maxRefusal bound a line, bytes.
	maxImageHeader = 1 << 10
	maxRefusal     = 1 << 10
	imagesTaken    = "ok"
)

// imageHeader precedes an image; an empty one ends the list.
type imageHeader struct {
	Volume string `json:"volume,omitempty"`
	// Size is in bytes.
	Size int64 `json:"size,omitempty"`
}

// sendImages sends the images in a directory.
func sendImages(ctx context.Context, conn net.Conn, dir string) error {
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	names, err := filepath.Glob(filepath.Join(dir, "*"+disk.ConfigImageSuffix))
	if err != nil {
		return err
	}
	out := bufio.NewWriter(conn)
	for _, name := range names {
		if err := sendImage(out, name); err != nil {
			return fmt.Errorf("send %s: %w", filepath.Base(name), err)
		}
	}
	if err := errors.Join(json.NewEncoder(out).Encode(imageHeader{}), out.Flush()); err != nil {
		return err
	}
	answer, err := bufio.NewReader(io.LimitReader(conn, maxRefusal)).ReadString('\n')
	if answer = strings.TrimSpace(answer); answer == imagesTaken {
		return nil
	}
	if err != nil {
		return fmt.Errorf("no answer: %w", err)
	}
	return fmt.Errorf("the other launcher: %s", answer)
}

func sendImage(out io.Writer, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	header := imageHeader{Volume: strings.TrimSuffix(filepath.Base(name), disk.ConfigImageSuffix), Size: info.Size()}
	if err := json.NewEncoder(out).Encode(header); err != nil {
		return err
	}
	_, err = io.CopyN(out, f, info.Size())
	return err
}

// takeImages takes the images of these volumes into a directory: all of them, or it fails.
func takeImages(in io.Reader, dir string, volumes []string) error {
	reader := bufio.NewReader(in)
	missing := slices.Clone(volumes)
	for {
		line, err := readLine(reader, maxImageHeader)
		if err != nil {
			return err
		}
		var header imageHeader
		if err := json.Unmarshal(line, &header); err != nil {
			return fmt.Errorf("read what comes: %w", err)
		}
		if header.Volume == "" {
			break
		}
		at := slices.Index(missing, header.Volume)
		if at < 0 || header.Size < 0 || header.Size > disk.MaxConfigImage {
			return fmt.Errorf("volume %q with %d bytes is not expected", header.Volume, header.Size)
		}
		missing = slices.Delete(missing, at, at+1)
		name := filepath.Join(dir, header.Volume+disk.ConfigImageSuffix)
		if err := takeImage(io.LimitReader(reader, header.Size), header.Size, name); err != nil {
			return fmt.Errorf("volume %q: %w", header.Volume, err)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the images of the volumes %v did not come", missing)
	}
	return nil
}

func takeImage(in io.Reader, size int64, name string) error {
	f, err := os.OpenFile(name+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	n, err := io.Copy(f, in)
	if err == nil && n != size {
		err = io.ErrUnexpectedEOF
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return os.Rename(f.Name(), name)
}

// readLine reads a line of at most so many bytes.
func readLine(r *bufio.Reader, most int) ([]byte, error) {
	var line []byte
	for len(line) < most {
		b, err := r.ReadByte()
		if err != nil {
			return nil, err
		}
		if b == '\n' {
			return line, nil
		}
		line = append(line, b)
	}
	return nil, fmt.Errorf("a line has more than %d bytes", most)
}

// giveImages sends the guest's images to the other launcher.
func (g *guest) giveImages(ctx context.Context, m move) error {
	if m.images == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, imagesTimeout)
	defer cancel()
	conn, err := g.call(ctx, m.images)
	if err == nil {
		err = errors.Join(sendImages(ctx, conn, m.to.CopyBelow), ignoreClosed(conn.Close()))
	}
	if err != nil {
		return fmt.Errorf("give the images of cloud-init and sysprep along: %w", err)
	}
	return nil
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// incomingImages are the images that are to come.
type incomingImages struct {
	listener net.Listener
	volumes  []string
}

// serveImages takes the images of a guest that is to come, until ctx ends. A migration may be tried more than once.
func (s *service) serveImages(ctx context.Context) {
	var in incomingImages
	select {
	case in = <-s.images:
	case <-ctx.Done():
		return
	}
	defer in.listener.Close()
	defer context.AfterFunc(ctx, func() { in.listener.Close() })()
	for {
		conn, err := in.listener.Accept()
		if err != nil {
			return
		}
		s.takeImages(ctx, conn, in.volumes)
	}
}

func (s *service) takeImages(ctx context.Context, conn net.Conn, volumes []string) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	answer := imagesTaken
	err := conn.SetDeadline(time.Now().Add(imagesTimeout))
	if err == nil && s.guest.exists() {
		err = errors.New("the guest is here already")
	}
	if err == nil {
		err = takeImages(conn, s.options.Disks.Disks, volumes)
	}
	if err != nil {
		s.options.Log.Warn("the images of cloud-init and sysprep were not taken", "err", err)
		answer = strings.ReplaceAll(err.Error(), "\n", " ")
	}
	if _, err := io.WriteString(conn, answer+"\n"); err != nil {
		s.options.Log.Info("the other launcher has gone", "err", err)
	}
}

package uploader

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"github.com/virtkit/virtkit/pkg/vm/imageformat"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// maxWindow is the farthest that compressed data may refer back, bytes: xz -9 needs so much. The server's memory is
// little more.
const maxWindow = 64 << 20

// errStopped ends the intake of an upload that has ended.
var errStopped = errors.New("the upload has ended")

// intake turns the bytes of a client into a disk: take is given them in order, however they are cut.
type intake struct {
	u    *upload
	mu   sync.Mutex // of take
	sum  hash.Hash
	pipe *io.PipeWriter
	// copied is closed when the other end of the pipe has ended; err is its result then.
	copied  chan struct{}
	format  imageformat.Format
	virtual int64
	err     error

	finishing sync.WaitGroup
	cancel    context.CancelFunc
	ctx       context.Context
}

func newIntake(u *upload) *intake {
	r, w := io.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	i := &intake{u: u, sum: sha256.New(), pipe: w, copied: make(chan struct{}), ctx: ctx, cancel: cancel}
	go func() {
		defer close(i.copied)
		i.err = i.copy(r)
		_ = r.CloseWithError(cmpErr(i.err, errStopped))
	}()
	return i
}

func cmpErr(err, otherwise error) error {
	if err == nil {
		return otherwise
	}
	return err
}

// take takes the next bytes; an error ends the upload.
func (i *intake) take(p []byte) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	n, err := i.pipe.Write(p)
	_, _ = i.sum.Write(p[:n]) // never fails
	i.u.change(func(s *uploads.State) { s.Received += int64(n) })
	return err
}

// finish verifies the checksum of all bytes, and makes the disk.
func (i *intake) finish(sum string) {
	i.finishing.Go(func() {
		if err := i.complete(sum); err != nil {
			i.u.fail(err)
		}
	})
}

func (i *intake) complete(sum string) error {
	i.mu.Lock()
	got := hex.EncodeToString(i.sum.Sum(nil))
	i.mu.Unlock()
	if got != sum {
		return fmt.Errorf("the checksum of what arrived is %s, and that of what was sent is %s: repeat the upload",
			got, sum)
	}
	i.u.change(func(s *uploads.State) { s.Phase, s.SHA256 = uploads.Converting, got })
	if err := i.pipe.Close(); err != nil {
		return err
	}
	<-i.copied
	if i.err != nil {
		return i.err
	}
	size, err := i.u.target.finish(i.ctx, i.format, i.virtual)
	if err != nil {
		return err
	}
	i.u.change(func(s *uploads.State) {
		s.Phase, s.Format, s.DiskSize, s.Message = uploads.Succeeded, i.format, size, ""
		s.VirtualSize = i.u.target.virtualSize()
	})
	return nil
}

// stop ends what goes on, and reports whether nothing had come.
func (i *intake) stop() (nothing bool) {
	i.cancel()
	_ = i.pipe.CloseWithError(errStopped)
	<-i.copied
	i.finishing.Wait()
	return i.u.now().Received == 0
}

// copy writes what the bytes are, decompressed, to the target.
func (i *intake) copy(r io.Reader) error {
	in := bufio.NewReaderSize(r, imageformat.HeadSize)
	head, err := in.Peek(xzHead)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	compression := imageformat.CompressionOf(head)
	plain, err := decompress(in, head, compression)
	if err != nil {
		return corrupt(compression, err)
	}
	defer plain.Close()
	out := bufio.NewReaderSize(plain, imageformat.HeadSize)
	head, err = out.Peek(imageformat.HeadSize)
	if err != nil && !errors.Is(err, io.EOF) {
		return corrupt(compression, err)
	}
	format := i.u.Request.Format
	if format == "" {
		if format, err = imageformat.Detect(head); err != nil {
			return err
		}
	}
	info, err := imageformat.Early(head, format)
	if err != nil {
		return err
	}
	if err := i.u.target.fits(info.VirtualSize); err != nil {
		return err
	}
	i.u.change(func(s *uploads.State) {
		s.Format, s.Compression, s.VirtualSize = format, compression, info.VirtualSize
	})
	i.format = format
	i.virtual, err = i.u.target.write(&reader{out, compression}, format)
	return err
}

// reader explains errors of compressed data.
type reader struct {
	io.Reader
	compression imageformat.Compression
}

func (r *reader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = corrupt(r.compression, err)
	}
	return n, err
}

func corrupt(compression imageformat.Compression, err error) error {
	if compression == imageformat.None || errors.Is(err, errStopped) {
		return err
	}
	var refused *imageformat.RefusedError
	if errors.As(err, &refused) {
		return err
	}
	return &imageformat.RefusedError{
		Reason: fmt.Sprintf("the %s data is corrupt, or ends too early: %v", compression, err),
	}
}

// decompress undoes a compression.
func decompress(in io.Reader, head []byte, compression imageformat.Compression) (io.ReadCloser, error) {
	switch compression {
	case imageformat.Gzip:
		return gzip.NewReader(in)
	case imageformat.XZ:
		if err := checkXZ(head); err != nil {
			return nil, err
		}
		r, err := xz.NewReader(in)
		if err != nil {
			return nil, err
		}
		return io.NopCloser(r), nil
	case imageformat.Zstd:
		r, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow),
			zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, err
		}
		return r.IOReadCloser(), nil
	}
	return io.NopCloser(in), nil
}

// xzHead is the number of bytes of an xz file that say how large its dictionary is: the stream's header, and the
// longest header of a block that names its sizes.
const xzHead = 12 + 32

// checkXZ refuses a dictionary that takes too much memory. The header of a block is its size, flags, its two sizes if
// the flags say so, and the filters, of which LZMA2 is 0x21, 1, and the dictionary's size; xz-file-format 1.2.
func checkXZ(head []byte) error {
	if len(head) < xzHead {
		return io.ErrUnexpectedEOF
	}
	block := head[12:]
	at := 2
	for _, flag := range []byte{0x40, 0x80} {
		if block[1]&flag == 0 {
			continue
		}
		for at < len(block) && block[at]&0x80 != 0 {
			at++
		}
		at++
	}
	if at+2 >= len(block) || block[0] == 0 || block[1]&3 != 0 || block[at] != 0x21 {
		return &imageformat.RefusedError{
			Reason: "the xz data uses filters that are not known here: compress it with xz alone",
		}
	}
	bits := block[at+2]
	if size := uint64(2|bits&1) << (bits/2 + 11); bits > 40 || size > maxWindow {
		return &imageformat.RefusedError{
			Reason: fmt.Sprintf("the xz data needs a dictionary of more than %d MiB: compress it with xz -9 or less",
				maxWindow>>20),
		}
	}
	return nil
}

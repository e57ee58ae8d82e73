package exporter

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/flate"
	"golang.org/x/sys/unix"
)

// qcow2Window is how far QEMU's decompression looks back, bytes.
const qcow2Window = 4096

// squeezer compresses clusters.
type squeezer struct {
	out bytes.Buffer
	to  *flate.Writer
}

// squeezers have qcow2's window.
var squeezers = sync.Pool{New: func() any {
	s := &squeezer{}
	var err error
	if s.to, err = flate.NewWriterWindow(&s.out, qcow2Window); err != nil {
		panic(err) // a programming error
	}
	return s
}}

// squeeze returns a cluster compressed, until the next call. The same cluster has always the same result.
func (s *squeezer) squeeze(cluster []byte) ([]byte, error) {
	s.out.Reset()
	s.to.Reset(&s.out)
	if _, err := s.to.Write(cluster); err != nil {
		return nil, err
	}
	if err := s.to.Close(); err != nil {
		return nil, err
	}
	return s.out.Bytes(), nil
}

// measure reads a disk and returns the layout of its image.
func measure(ctx context.Context, disk *os.File, size int64) (*layout, error) {
	bits, err := clusterBits(size)
	if err != nil {
		return nil, err
	}
	cluster := int64(1) << bits
	lengths := make([]uint32, up(size, cluster))
	var wait sync.WaitGroup
	failed := make([]error, processors)
	stripe := max(part/cluster, 1) // clusters
	for n := range int64(processors) {
		wait.Go(func() {
			buffer := make([]byte, stripe*cluster)
			for i := n * stripe; i < int64(len(lengths)) && failed[n] == nil; i += processors * stripe {
				if failed[n] = ctx.Err(); failed[n] == nil {
					failed[n] = measureStripe(disk, size, buffer, bits, lengths, i)
				}
			}
		})
	}
	wait.Wait()
	if err := errors.Join(failed...); err != nil {
		return nil, err
	}
	return newLayout(bits, size, lengths), nil
}

// measureStripe sets the lengths of the clusters from one on, as many as the buffer has room for.
func measureStripe(disk *os.File, size int64, buffer []byte, bits uint, lengths []uint32, from int64) error {
	cluster := int64(1) << bits
	at := from << bits
	stripe := buffer[:min(int64(len(buffer)), up(size-at, cluster)<<bits)]
	clear(stripe) // the last cluster may have a part of the disk only
	zero, err := load(disk, stripe[:min(int64(len(stripe)), size-at)], at)
	if err != nil || zero {
		return err
	}
	s := squeezers.Get().(*squeezer)
	defer squeezers.Put(s)
	for i := from; len(stripe) > 0; i++ {
		data := stripe[:cluster]
		stripe = stripe[cluster:]
		if zeros(data) {
			continue
		}
		packed, err := s.squeeze(data)
		if err != nil {
			return err
		}
		lengths[i] = uint32(min(int64(len(packed)), cluster))
	}
	return nil
}

// qcow2 is an image of a disk, as a file that is read.
type qcow2 struct {
	*layout
	disk *image
	at   int64
	// current is a cluster of the image, which begins at begins.
	current []byte
	begins  int64
	raw     []byte
	s       squeezer
}

func newQCOW2(l *layout, disk *image) (*qcow2, error) {
	q := &qcow2{layout: l, disk: disk, raw: make([]byte, l.cluster()), begins: math.MaxInt64}
	var err error
	q.s.to, err = flate.NewWriterWindow(&q.s.out, qcow2Window)
	return q, err
}

// Seek implements io.Seeker.
func (q *qcow2) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += q.at
	case io.SeekEnd:
		offset += q.end
	}
	if offset < 0 {
		return 0, unix.EINVAL
	}
	q.at = offset
	return offset, nil
}

// Read implements io.Reader. It fails instead of giving the end of a disk that has changed since it was measured.
func (q *qcow2) Read(p []byte) (int, error) {
	if q.at >= q.end {
		return 0, io.EOF
	}
	if q.at < q.begins || q.at >= q.begins+int64(len(q.current)) {
		if err := q.load(); err != nil {
			return 0, err
		}
	}
	n := copy(p, q.current[q.at-q.begins:])
	q.at += int64(n)
	if q.at == q.end {
		if err := q.disk.unchanged(); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// load sets current to what the image has at the place that is to be read.
func (q *qcow2) load() error {
	last := q.offsets[len(q.packed)]
	switch {
	case q.at < int64(len(q.meta)):
		q.current, q.begins = q.meta, 0
		return nil
	case q.at < q.start:
		i := q.at>>q.bits - int64(len(q.meta))>>q.bits
		q.begins = q.at &^ (q.cluster() - 1)
		q.current = q.raw
		return q.read(q.plain[i])
	case q.at >= last:
		q.current, q.begins = make([]byte, q.end-last), last
		return nil
	}
	i := sort.Search(len(q.packed), func(i int) bool { return q.offsets[i+1] > q.at })
	if err := q.read(q.packed[i]); err != nil {
		return err
	}
	packed, err := q.s.squeeze(q.raw)
	if err != nil {
		return err
	}
	if int64(len(packed)) != q.offsets[i+1]-q.offsets[i] {
		return errChanged
	}
	q.current, q.begins = packed, q.offsets[i]
	return nil
}

// read reads a cluster of the disk.
func (q *qcow2) read(cluster uint32) error {
	at := int64(cluster) << q.bits
	clear(q.raw)
	n := min(q.cluster(), q.disk.size-at)
	if _, err := q.disk.ReadAt(q.raw[:n], at); err != nil {
		return fmt.Errorf("read the disk at %d: %w", at, err)
	}
	return nil
}

// layouts has the layout of the disk that was measured last.
type layouts struct {
	// turn is taken by who measures a disk.
	turn chan struct{}
	tag  string
	last *layout
	// measured is the VM's OVA, of the disks with these tags. At most one of the two is there.
	ovaTag   string
	measured *measured
}

// of returns the layout of the image of a disk.
func (l *layouts) of(ctx context.Context, volume Volume, disk *image) (*layout, error) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	tag := volume.Name + " " + disk.tag
	if l.last != nil && l.tag == tag {
		return l.last, nil
	}
	l.last, l.measured = nil, nil // two are too many for the server's memory
	made, err := measure(ctx, disk.File, disk.size)
	if err == nil {
		err = disk.unchanged()
	}
	if err != nil {
		return nil, err
	}
	l.tag, l.last = tag, made
	return made, nil
}

// serveQCOW2 serves a disk as a compressed qcow2 image, or ranges of it. The first byte comes when the disk was read
// once.
func (h *handler) serveQCOW2(w http.ResponseWriter, r *http.Request, volume Volume) error {
	i, err := h.open(volume)
	if err != nil {
		return err
	}
	defer i.Close()
	l, err := h.layouts.of(r.Context(), volume, i)
	if err != nil {
		return err
	}
	image, err := newQCOW2(l, i)
	if err != nil {
		return err
	}
	// What another version compresses otherwise has other places.
	sum := sha256.Sum256(l.meta)
	i.tag = fmt.Sprintf(`"%s-%x"`, strings.Trim(i.tag, `"`), sum[:8])
	i.head(w)
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", time.Time{}, image)
	return nil
}

package exporter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync"

	"github.com/klauspost/compress/flate"
	"golang.org/x/sys/unix"
)

const (
	// qcow2Window is how far QEMU's decompression looks back, bytes.
	qcow2Window = 4096
	// stretch is how much of a disk is measured at a time, bytes, unless a cluster is more.
	stretch = 1 << 20
)

// squeezer compresses clusters.
type squeezer struct {
	out bytes.Buffer
	to  *flate.Writer
}

// squeeze returns a cluster compressed, until the next call. The same cluster has always the same result.
func (s *squeezer) squeeze(cluster []byte) ([]byte, error) {
	s.out.Reset()
	s.out.Grow(len(cluster) + len(cluster)/64 + 1<<10) // what cannot be compressed is little more
	if s.to == nil {
		var err error
		if s.to, err = flate.NewWriterWindow(&s.out, qcow2Window); err != nil {
			return nil, err
		}
	}
	s.to.Reset(&s.out)
	if _, err := s.to.Write(cluster); err != nil {
		return nil, err
	}
	if err := s.to.Close(); err != nil {
		return nil, err
	}
	return s.out.Bytes(), nil
}

// bench is what the compression of clusters needs, with room for what is compressed.
type bench struct {
	squeezer
	raw []byte
}

// benches are all that there are, whoever needs one: each may have several MiB.
var benches = sync.OnceValue(func() chan *bench {
	all := make(chan *bench, processors)
	for range processors {
		all <- &bench{}
	}
	return all
})

// room returns n zeros.
func (b *bench) room(n int64) []byte {
	if int64(cap(b.raw)) < n {
		b.raw = make([]byte, n)
	}
	clear(b.raw[:n])
	return b.raw[:n]
}

// measure reads a disk and returns the layout of its image.
func measure(ctx context.Context, disk *os.File, size int64) (*layout, error) {
	bits, err := clusterBits(size)
	if err != nil {
		return nil, err
	}
	return measureClusters(ctx, disk, size, bits)
}

// measureClusters measures with clusters of a size. It does not look at holes.
func measureClusters(ctx context.Context, disk *os.File, size int64, bits uint) (*layout, error) {
	lengths := make([]uint32, up(size, 1<<bits))
	stripe := max(int64(stretch)>>bits, 1) // clusters
	var wait sync.WaitGroup
	failed := make([]error, processors)
	for n := range int64(processors) {
		wait.Go(func() {
			for s := n; failed[n] == nil && (s*stripe)<<bits < size; s += processors {
				if failed[n] = ctx.Err(); failed[n] != nil {
					return
				}
				next := nextData(disk, (s*stripe)<<bits, size)
				if next == size {
					return
				}
				s += up(max(next>>bits/stripe-s, 0), processors) * processors
				failed[n] = measureStripe(disk, size, bits, lengths, s*stripe, stripe)
			}
		})
	}
	wait.Wait()
	if err := errors.Join(failed...); err != nil {
		return nil, err
	}
	return newLayout(bits, size, lengths), nil
}

// nextData returns where the next data of a disk are that is not a hole, at a place or after it; its size for none.
func nextData(disk *os.File, at, size int64) int64 {
	next, err := unix.Seek(int(disk.Fd()), at, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return size
	case err != nil: // it is not known, and reading says what is wrong
		return at
	}
	return min(next, size)
}

// measureStripe sets the lengths of some clusters from one on.
func measureStripe(disk *os.File, size int64, bits uint, lengths []uint32, from, clusters int64) error {
	at := from << bits
	if at >= size {
		return nil
	}
	b := <-benches()
	defer func() { benches() <- b }()
	cluster := int64(1) << bits
	stripe := b.room(min(clusters, up(size-at, cluster)) << bits) // the last cluster may have a part of the disk only
	zero, err := load(disk, stripe[:min(int64(len(stripe)), size-at)], at)
	if err != nil || zero {
		return err
	}
	for i := from; len(stripe) > 0; i++ {
		data := stripe[:cluster]
		stripe = stripe[cluster:]
		if zeros(data) {
			continue
		}
		packed, err := b.squeeze(data)
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
	// current is a part of the image, which begins at begins: a cluster of tables, or a compressed one.
	current []byte
	begins  int64
}

func newQCOW2(l *layout, disk *image) *qcow2 {
	return &qcow2{layout: l, disk: disk, begins: math.MaxInt64}
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
func (q *qcow2) Read(p []byte) (n int, err error) {
	switch {
	case q.at >= q.end:
		return 0, io.EOF
	case q.at >= q.first<<q.bits && q.at < q.start:
		n, err = q.plain(p)
	case q.at >= q.packedEnd:
		n = int(min(int64(len(p)), q.end-q.at))
		clear(p[:n])
	default:
		if q.at < q.begins || q.at >= q.begins+int64(len(q.current)) {
			err = q.load()
		}
		if err == nil {
			n = copy(p, q.current[q.at-q.begins:])
		}
	}
	if err != nil {
		return 0, err
	}
	q.at += int64(n)
	if q.at == q.end {
		if err := q.disk.unchanged(); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// plain reads of a cluster that the image has as it is.
func (q *qcow2) plain(p []byte) (int, error) {
	cluster := q.plainAt(q.at>>q.bits - q.first)
	within := q.at & (q.cluster() - 1)
	p = p[:min(int64(len(p)), q.cluster()-within)]
	return len(p), q.read(p, cluster<<q.bits+within)
}

// load sets current to what the image has at the place that is to be read.
func (q *qcow2) load() error {
	if q.at < q.first<<q.bits {
		q.begins = q.at &^ (q.cluster() - 1)
		q.current = grown(q.current, q.cluster())
		q.table(q.begins>>q.bits, q.current)
		return nil
	}
	b := <-benches()
	defer func() { benches() <- b }()
	raw := b.room(q.cluster())
	cluster, begins, length := q.packedAt(q.at)
	if err := q.read(raw, cluster<<q.bits); err != nil {
		return err
	}
	packed, err := b.squeeze(raw)
	if err != nil {
		return err
	}
	if len(packed) != int(length) {
		return errChanged
	}
	q.current, q.begins = grown(q.current, int64(length)), begins
	copy(q.current, packed)
	return nil
}

// grown returns a slice of a length, of which the content is any.
func grown(b []byte, n int64) []byte {
	if int64(cap(b)) < n {
		return make([]byte, n)
	}
	return b[:n]
}

// read reads a part of the disk, with zeros after its end.
func (q *qcow2) read(p []byte, at int64) error {
	n := min(max(q.disk.size-at, 0), int64(len(p)))
	clear(p[n:])
	if _, err := q.disk.ReadAt(p[:n], at); err != nil {
		return fmt.Errorf("read the disk at %d: %w", at, err)
	}
	return nil
}

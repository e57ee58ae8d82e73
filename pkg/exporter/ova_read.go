package exporter

import (
	"io"
	"net/http"
	"sort"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/names"
)

// piece is a piece of an archive.
type piece interface {
	length() int64
	// at returns what is around a place, and where that begins. It is there until the next call.
	at(place int64) (data []byte, begins int64, err error)
	// unchanged fails when it is of a disk that was written to since it was opened.
	unchanged() error
}

// literal is a piece that is known.
type literal []byte

func (l literal) length() int64                         { return int64(len(l)) }
func (l literal) at(int64) (_ []byte, _ int64, _ error) { return l, 0, nil }
func (l literal) unchanged() error                      { return nil }

// plain is a disk as it is.
type plain struct {
	*image
	buffer []byte
}

func (p *plain) length() int64 { return p.size }

func (p *plain) at(place int64) ([]byte, int64, error) {
	begins := place - place%int64(len(p.buffer))
	data := p.buffer[:min(int64(len(p.buffer)), p.size-begins)]
	_, err := p.ReadAt(data, begins)
	return data, begins, err
}

// archive is pieces, one after the other, as a file that is read.
type archive struct {
	pieces []piece
	// starts are where they begin; the last of them is the end.
	starts []int64
	place  int64
	// current is a part of it, which begins at begins.
	current []byte
	begins  int64
}

func newArchive(pieces []piece) *archive {
	a := &archive{pieces: pieces, starts: []int64{0}}
	for _, p := range pieces {
		a.starts = append(a.starts, a.end()+p.length())
	}
	return a
}

func (a *archive) end() int64 { return a.starts[len(a.starts)-1] }

// Seek implements io.Seeker.
func (a *archive) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += a.place
	case io.SeekEnd:
		offset += a.end()
	}
	if offset < 0 {
		return 0, unix.EINVAL
	}
	a.place = offset
	return offset, nil
}

// Read implements io.Reader. It fails instead of giving the end of what has changed meanwhile.
func (a *archive) Read(p []byte) (int, error) {
	if a.place >= a.end() {
		return 0, io.EOF
	}
	if a.place < a.begins || a.place >= a.begins+int64(len(a.current)) {
		i := sort.Search(len(a.pieces), func(i int) bool { return a.starts[i+1] > a.place })
		data, begins, err := a.pieces[i].at(a.place - a.starts[i])
		if err != nil {
			return 0, err
		}
		a.current, a.begins = data, a.starts[i]+begins
	}
	n := copy(p, a.current[a.place-a.begins:])
	a.place += int64(n)
	if a.place == a.end() {
		for _, piece := range a.pieces {
			if err := piece.unchanged(); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

// serveOVA serves the VM with its disks as an OVA, or ranges of it. The first byte comes when the disks were read once.
func (h *handler) serveOVA(w http.ResponseWriter, r *http.Request) error {
	m, err := h.machine()
	if err != nil {
		return err
	}
	images := make([]*image, len(m.volumes))
	for i, volume := range m.volumes {
		if images[i], err = h.open(h.volumes[volume.Claim]); err != nil {
			return err
		}
		defer images[i].Close()
	}
	of, done, err := h.layouts.ova(r.Context(), m, images, h.Created)
	if err != nil {
		return err
	}
	defer done()
	var pieces []piece
	for i, disk := range images {
		pieces = append(pieces, literal(of.heads[i]))
		if layout := of.layouts[i]; layout != nil {
			pieces = append(pieces, newVMDK(layout, disk))
		} else {
			pieces = append(pieces, &plain{disk, make([]byte, vmdkGrain)})
		}
	}
	pieces = append(pieces, literal(of.heads[len(images)]))
	for _, left := range m.left {
		w.Header().Add(names.HeaderNotIncluded, strings.ToValidUTF8(left, "?"))
	}
	w.Header().Set("ETag", of.tag)
	w.Header().Set("Content-Type", "application/x-tar")
	http.ServeContent(w, r, "", time.Time{}, newArchive(pieces))
	return nil
}

package exporter

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// layoutRoom is how many bytes the layouts may have whose images are downloaded at a time. One alone has less.
const layoutRoom = 16 << 20

// errBusy is an image for whose layout there is no room beside those that are downloaded.
var errBusy = errors.New("the export serves images of other disks, beside which it has no memory for this one: try " +
	"again later, or download it raw or compressed")

// sized is a layout.
type sized interface {
	// weight is how many bytes it has.
	weight() int64
}

// layouts has the layout of the disk that was measured last, and knows those of the images that are downloaded.
type layouts struct {
	// turn is taken by who measures a disk.
	turn chan struct{}
	tag  string
	last *layout
	// measured is the VM's OVA, of the disks with these tags. At most one of the two is there.
	ovaTag   string
	measured *measured

	mu sync.Mutex
	// used counts the downloads of each layout, and weighs is how many bytes these have.
	used   map[sized]int
	weighs int64
}

// use counts a download, until done is called, unless its layout has no room beside the others.
func (l *layouts) use(of sized) (done func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.used == nil {
		l.used = map[sized]int{}
	}
	if l.used[of] == 0 {
		if l.weighs > 0 && l.weighs+of.weight() > layoutRoom {
			return nil, errBusy
		}
		l.weighs += of.weight()
	}
	l.used[of]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.used[of]--; l.used[of] == 0 {
			delete(l.used, of)
			l.weighs -= of.weight()
		}
	}, nil
}

// wait takes the turn to measure.
func (l *layouts) wait(ctx context.Context) (done func(), err error) {
	select {
	case l.turn <- struct{}{}:
		return func() { <-l.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// of returns the layout of the image of a disk.
func (l *layouts) of(ctx context.Context, volume Volume, disk *image) (*layout, error) {
	done, err := l.wait(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
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

// ova returns what is known of the OVA of these disks.
func (l *layouts) ova(
	ctx context.Context, m *machine, images []*image, created time.Time,
) (*measured, error) {
	done, err := l.wait(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	var tags strings.Builder
	for _, i := range images {
		tags.WriteString(i.tag)
	}
	if l.measured != nil && l.ovaTag == tags.String() {
		return l.measured, nil
	}
	l.last, l.measured = nil, nil // two are too many for the server's memory
	made, err := m.measureOVA(ctx, images, created)
	if err != nil {
		return nil, err
	}
	l.ovaTag, l.measured = tags.String(), made
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
	done, err := h.layouts.use(l)
	if err != nil {
		return err
	}
	defer done()
	// What another version compresses otherwise has other places.
	i.tag = fmt.Sprintf(`"%s-%x"`, strings.Trim(i.tag, `"`), l.sum[:8])
	i.head(w)
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", time.Time{}, newQCOW2(l, i))
	return nil
}

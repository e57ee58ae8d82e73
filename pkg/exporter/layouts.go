package exporter

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
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

// held is a layout that is known by a tag, which is that of the disks, too.
type held struct {
	sized
	tag string
	// downloads are those of its image now.
	downloads int
}

// layouts has the layouts whose images are downloaded, and the one that was measured last.
type layouts struct {
	// turn is taken by who measures a disk, and by who looks whether that is needed.
	turn chan struct{}

	mu sync.Mutex
	// last was measured last; nil for none.
	last *held
	// used are those whose images are downloaded, and weighs is how many bytes these have, with what is reserved.
	used   []*held
	weighs int64
}

// reserve takes room for a layout, until free is called, unless there is none beside the others.
func (l *layouts) reserve(weight int64) (free func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.weighs > 0 && l.weighs+weight > layoutRoom {
		return nil, errBusy
	}
	l.weighs += weight
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.weighs -= weight
	}, nil
}

// use counts a download, until done is called, unless its layout has no room beside the others.
func (l *layouts) use(of *held) (done func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if of.downloads == 0 {
		if l.weighs > 0 && l.weighs+of.weight() > layoutRoom {
			return nil, errBusy
		}
		l.weighs += of.weight()
		l.used = append(l.used, of)
	}
	of.downloads++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if of.downloads--; of.downloads == 0 {
			l.used = slices.DeleteFunc(l.used, func(h *held) bool { return h == of })
			l.weighs -= of.weight()
		}
	}, nil
}

// known returns the layout of a tag, nil for none.
func (l *layouts) known(tag string) *held {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last != nil && l.last.tag == tag {
		return l.last
	}
	for _, h := range l.used {
		if h.tag == tag {
			return h
		}
	}
	return nil
}

// keep sets the layout that was measured last; nil for none.
func (l *layouts) keep(h *held) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = h
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

// get returns the layout of a tag for a download, which ends with done. One that is not known is measured; most is how
// many bytes it may have, and the room for them is taken before, since it may take hours.
func (l *layouts) get(
	ctx context.Context, tag string, most int64, measure func() (sized, error),
) (of sized, done func(), err error) {
	end, err := l.wait(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer end()
	found := l.known(tag)
	if found == nil {
		free, err := l.reserve(most)
		if err != nil {
			return nil, nil, err
		}
		l.keep(nil) // two are too many for the server's memory
		made, err := measure()
		free() // nobody else takes room before use: that has a turn
		if err != nil {
			return nil, nil, err
		}
		found = &held{sized: made, tag: tag}
		l.keep(found)
	}
	done, err = l.use(found)
	return found.sized, done, err
}

// of returns the layout of the image of a disk for a download, which ends with done.
func (l *layouts) of(ctx context.Context, volume Volume, disk *image) (found *layout, done func(), err error) {
	most, err := mostOfLayout(disk.size)
	if err != nil {
		return nil, nil, err
	}
	of, done, err := l.get(ctx, "qcow2 "+volume.Name+" "+disk.tag, most, func() (sized, error) {
		made, err := measure(ctx, disk.File, disk.size)
		if err == nil {
			err = disk.unchanged()
		}
		return made, err
	})
	if err != nil {
		return nil, nil, err
	}
	return of.(*layout), done, nil
}

// ova returns what is known of the OVA of these disks for a download, which ends with done.
func (l *layouts) ova(
	ctx context.Context, m *machine, images []*image, created time.Time,
) (found *measured, done func(), err error) {
	most, err := m.mostMeasured(images)
	if err != nil {
		return nil, nil, err
	}
	var tag strings.Builder
	tag.WriteString("OVA ")
	for _, i := range images {
		tag.WriteString(i.tag)
	}
	of, done, err := l.get(ctx, tag.String(), most, func() (sized, error) {
		return m.measureOVA(ctx, images, created)
	})
	if err != nil {
		return nil, nil, err
	}
	return of.(*measured), done, nil
}

// serveQCOW2 serves a disk as a compressed qcow2 image, or ranges of it. The first byte comes when the disk was read
// once.
func (h *handler) serveQCOW2(w http.ResponseWriter, r *http.Request, volume Volume) error {
	i, err := h.open(volume)
	if err != nil {
		return err
	}
	defer i.Close()
	l, done, err := h.layouts.of(r.Context(), volume, i)
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

package streams

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/handler/podfs"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/vm/domain"
)

const (
	// maxLog is the most of a log's past that is sent, bytes: more than a launcher keeps.
	maxLog = 8 << 20
	// maxOffsets bounds the file that says how long a log was when, bytes.
	maxOffsets = 64 << 10
	// follow is the interval of looks at a log that is followed.
	follow = 200 * time.Millisecond
	// lastWrite is the time that a client that does not read gets when the server ends.
	lastWrite = time.Second
	// overlap is the number of bytes remembered of what was sent, to find the place again in a log that was cut.
	overlap = 256
)

// log sends what the guest wrote to its serial port, or what QEMU complained of:
// …/log/{serial,qemu}[?tail=LINES][&since=RFC3339][&follow=true]. With names.HeaderLogResume it
// begins after the bytes that a client has seen last.
func (s *Server) log(w http.ResponseWriter, r *http.Request) {
	_, pod, err := s.Launcher(name(r))
	if err != nil {
		refuse(w, name(r), err)
		return
	}
	run, err := podfs.OpenRun(s.PodsDir, pod)
	if err != nil {
		refuse(w, name(r), err)
		return
	}
	defer run.Close()
	file := names.LogSerial
	switch source := r.PathValue("source"); source {
	case "serial":
	case "qemu":
		file = path.Join(names.QEMULogDir, domain.Name(name(r).Namespace, name(r).Name)+".log")
	default:
		refuse(w, name(r), apierrors.NewBadRequest(fmt.Sprintf("log %q is not serial or qemu", source)))
		return
	}
	f, size, err := run.OpenRegular(file)
	if errors.Is(err, fs.ErrNotExist) {
		err = apierrors.NewConflict(resource, name(r).Name, fmt.Errorf("the guest has no %s log yet",
			r.PathValue("source"))) // virt-api has refused one that never has
	}
	if err != nil {
		refuse(w, name(r), err)
		return
	}
	defer f.Close()
	text := &logText{of: f, room: s.room}
	begin := int64(0)
	if text.hold() {
		begin, err = past(text, size, run, file, r)
	} else {
		err = errBusy
	}
	defer text.letGo()
	if err == nil {
		err = text.seek(begin)
	}
	if err != nil {
		refuse(w, name(r), err)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err := text.send(w, size-begin); err != nil || r.URL.Query().Get("follow") != "true" {
		return
	}
	text.letGo()
	s.active.Add(1)
	defer s.active.Done()
	s.followLog(w, r, pod, text)
}

// past returns the offset in a log of a size at which the part that the request asks for begins.
func past(text *logText, size int64, run *podfs.Run, file string, r *http.Request) (int64, error) {
	query := r.URL.Query()
	begin := max(0, size-maxLog)
	if resume := r.Header.Get(names.HeaderLogResume); resume != "" {
		last, err := hex.DecodeString(resume)
		if err != nil || len(last) == 0 || len(last) > overlap {
			return 0, apierrors.NewBadRequest(names.HeaderLogResume + " is not hexadecimal, of 1 to 256 bytes")
		}
		at, found, err := text.lastIndex(begin, size, last)
		if found {
			begin = at + int64(len(last))
		}
		return begin, err
	}
	if since := query.Get("since"); since != "" {
		at, err := time.Parse(time.RFC3339, since)
		if err != nil {
			return 0, apierrors.NewBadRequest(fmt.Sprintf("since=%q is not a time as RFC 3339 has it", since))
		}
		offsets, err := run.Read(file+names.OffsetsSuffix, maxOffsets)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
		begin = max(begin, min(sizeAt(offsets, at), size))
	}
	if tail := query.Get("tail"); tail != "" {
		lines, err := strconv.Atoi(tail)
		if err != nil || lines < 0 {
			return 0, apierrors.NewBadRequest(fmt.Sprintf("tail=%q is not a number of lines", tail))
		}
		return text.lastLines(begin, size, lines)
	}
	return begin, nil
}

// sizeAt returns the greatest size that a log can have had at a time, from its offsets; 0 when they do not reach back.
func sizeAt(offsets []byte, at time.Time) int64 {
	size := int64(0)
	for line := range strings.Lines(string(offsets)) {
		seconds, bytes, ok := strings.Cut(strings.TrimSpace(line), " ")
		when, err := strconv.ParseInt(seconds, 10, 64)
		if !ok || err != nil || when > at.Unix() {
			break
		}
		if n, err := strconv.ParseInt(bytes, 10, 64); err == nil && n > 0 {
			size = n
		}
	}
	return size
}

// followLog sends what is added, until the guest ends or the client goes.
func (s *Server) followLog(w http.ResponseWriter, r *http.Request, pod types.UID, text *logText) {
	control := http.NewResponseController(w)
	// The server waits for us when it ends, and a client that does not read would hold it up.
	defer context.AfterFunc(s.ctx, func() { _ = control.SetWriteDeadline(time.Now().Add(lastWrite)) })()
	if err := control.Flush(); err != nil {
		return
	}
	text.flush = control.Flush
	tick := time.NewTicker(follow)
	defer tick.Stop()
	for {
		if added, err := text.added(); err != nil {
			return
		} else if added && text.hold() { // without room, after a while
			err := text.send(w, maxLog)
			text.letGo()
			if err != nil {
				return
			}
		}
		if _, now, err := s.Launcher(name(r)); err != nil || now != pod {
			return // the guest has ended, or moved
		}
		select {
		case <-r.Context().Done():
			return
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
	}
}

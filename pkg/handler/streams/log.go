package streams

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/virtkit/virtkit/pkg/domain"
	"github.com/virtkit/virtkit/pkg/handler/podfs"
	"github.com/virtkit/virtkit/pkg/names"
)

const (
	// maxLog is the most of a log's past that is sent, bytes: more than a launcher keeps.
	maxLog = 8 << 20
	// maxMarks bounds the file that says how long a log was when, bytes.
	maxMarks = 64 << 10
	// follow is how often a log that is followed is looked at.
	follow = 200 * time.Millisecond
	// lastWrite is what a client that does not read gets when the server ends.
	lastWrite = time.Second
	// overlap is how much of what was sent is remembered, to find the place again in a log that was cut.
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
	room := &held{of: s.room}
	defer room.free()
	text, err := past(run, file, r, room)
	if errors.Is(err, fs.ErrNotExist) {
		err = apierrors.NewConflict(resource, name(r).Name, fmt.Errorf("the guest has no %s log; spec.domain.devices.autoattachSerialConsole or logSerialConsole may be false", r.PathValue("source")))
	}
	if err != nil {
		refuse(w, name(r), err)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if _, err := w.Write(text); err != nil || r.URL.Query().Get("follow") != "true" {
		return
	}
	room.free()
	s.active.Add(1)
	defer s.active.Done()
	s.followLog(w, r, run, file, text)
}

// past is what a log has so far, as far as the request wants it; it takes room for it.
func past(run *podfs.Run, file string, r *http.Request, room *held) ([]byte, error) {
	query := r.URL.Query()
	f, size, err := run.OpenRegular(file)
	if err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	if !room.take(int(min(size, maxLog))) {
		return nil, errBusy
	}
	text, err := run.Tail(file, maxLog)
	if err != nil {
		return nil, err
	}
	if resume := r.Header.Get(names.HeaderLogResume); resume != "" {
		last, err := hex.DecodeString(resume)
		if err != nil || len(last) == 0 || len(last) > overlap {
			return nil, apierrors.NewBadRequest(names.HeaderLogResume + " is not hexadecimal, of 1 to 256 bytes")
		}
		if at := bytes.LastIndex(text, last); at >= 0 {
			text = text[at+len(last):]
		}
		return text, nil
	}
	if since := query.Get("since"); since != "" {
		at, err := time.Parse(time.RFC3339, since)
		if err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("since=%q is not a time as RFC 3339 has it", since))
		}
		marks, err := run.Read(file+names.MarksSuffix, maxMarks)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		text = text[min(sizeAt(marks, at), int64(len(text))):]
	}
	if tail := query.Get("tail"); tail != "" {
		lines, err := strconv.Atoi(tail)
		if err != nil || lines < 0 {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("tail=%q is not a number of lines", tail))
		}
		text = lastLines(text, lines)
	}
	return text, nil
}

// sizeAt is how long a log was at a time at the latest, from its marks; 0 when they do not reach back.
func sizeAt(marks []byte, at time.Time) int64 {
	size := int64(0)
	for line := range strings.Lines(string(marks)) {
		seconds, bytes, ok := strings.Cut(strings.TrimSpace(line), " ")
		when, err := strconv.ParseInt(seconds, 10, 64)
		if !ok || err != nil || time.Unix(when, 0).After(at) {
			break
		}
		if n, err := strconv.ParseInt(bytes, 10, 64); err == nil && n > 0 {
			size = n
		}
	}
	return size
}

// lastLines are the last n lines; one that is not complete counts.
func lastLines(text []byte, n int) []byte {
	end := len(bytes.TrimSuffix(text, []byte("\n")))
	at := end
	for range n {
		at = bytes.LastIndexByte(text[:max(at, 0)], '\n')
		if at < 0 {
			return text
		}
	}
	if n == 0 {
		return nil
	}
	return text[at+1:]
}

// followLog sends what is added, until the guest ends or the client goes.
func (s *Server) followLog(w http.ResponseWriter, r *http.Request, run *podfs.Run, file string, sent []byte) {
	control := http.NewResponseController(w)
	// The server waits for us when it ends, and a client that does not read would hold it up.
	defer context.AfterFunc(s.ctx, func() { _ = control.SetWriteDeadline(time.Now().Add(lastWrite)) })()
	if err := control.Flush(); err != nil {
		return
	}
	last := bytes.Clone(sent[max(0, len(sent)-overlap):])
	_, pod, err := s.Launcher(name(r))
	if err != nil {
		return
	}
	f, offset, err := run.OpenRegular(file)
	if err != nil {
		return
	}
	defer f.Close()
	if at, ok := place(f, offset, last); ok {
		offset = at
	}
	tick := time.NewTicker(follow)
	defer tick.Stop()
	buffer := make([]byte, 64<<10)
	for {
		info, err := f.Stat()
		if err != nil {
			return
		}
		if info.Size() < offset { // cut
			offset = info.Size()
			if at, ok := place(f, info.Size(), last); ok {
				offset = at
			}
		}
		n, err := f.ReadAt(buffer, offset)
		if n > 0 {
			if _, err := w.Write(buffer[:n]); err != nil {
				return
			}
			if err := control.Flush(); err != nil {
				return
			}
			offset += int64(n)
			last = append(last, buffer[:n]...)
			last = bytes.Clone(last[max(0, len(last)-overlap):])
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return
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

// place finds where what was sent last ends in a log of a size.
func place(f io.ReaderAt, size int64, last []byte) (int64, bool) {
	if len(last) == 0 {
		return 0, size == 0
	}
	from := max(0, size-maxLog)
	text := make([]byte, size-from)
	n, err := f.ReadAt(text, from)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, false
	}
	at := bytes.LastIndex(text[:n], last)
	if at < 0 {
		return 0, false
	}
	return from + int64(at+len(last)), true
}

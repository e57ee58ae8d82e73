package launcher

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/virtkit/virtkit/pkg/service/config/jsonlog"
)

const (
	// maxLine bounds a line of another program's log, bytes; the rest of it is left out.
	maxLine = 8 << 10
	// queued is the number of lines that wait for the reader of the launcher's own log.
	queued = 128
	// patience is the time that a line waits for room among them before lines are left out.
	patience = 100 * time.Millisecond
	// linger is the time that the launcher reads on, at its end, from a pipe that something else holds open.
	linger = time.Second
)

// lines passes lines of other programs' logs on to the launcher's own. Whoever writes them never waits for the reader
// of that for longer than patience: what has no room is left out, and counted.
type lines struct {
	handler slog.Handler
	queue   chan slog.Record
	lost    atomic.Int64
	done    chan struct{}
}

// newLines makes one; close ends it, once nobody offers any more.
func newLines(handler slog.Handler) *lines {
	l := &lines{handler: handler, queue: make(chan slog.Record, queued), done: make(chan struct{})}
	go l.write()
	return l
}

func (l *lines) close() {
	close(l.queue)
	<-l.done
}

// write writes records as they come. It has nowhere to report its errors: it would report them to this log.
func (l *lines) write() {
	defer close(l.done)
	for record := range l.queue {
		l.confess()
		_ = l.handler.Handle(context.Background(), record)
	}
	l.confess()
}

// confess writes how many lines were left out.
func (l *lines) confess() {
	if n := l.lost.Swap(0); n > 0 {
		record := slog.NewRecord(time.Now(), slog.LevelWarn, "lines left out: they came faster than they were read", 0)
		record.AddAttrs(slog.Int64("lines", n))
		_ = l.handler.Handle(context.Background(), record)
	}
}

// offer passes a line on, or counts it.
func (l *lines) offer(record slog.Record) {
	if l.lost.Load() > 0 {
		select {
		case l.queue <- record:
		default:
			l.lost.Add(1)
		}
		return
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case l.queue <- record:
	case <-timer.C:
		l.lost.Add(1)
	}
}

// text offers a line as it is.
func (l *lines) text(subcomponent, line string) {
	if line = strings.TrimSpace(line); line == "" {
		return
	}
	record := slog.NewRecord(time.Now(), slog.LevelInfo, line, 0)
	record.AddAttrs(slog.String(jsonlog.Subcomponent, subcomponent))
	l.offer(record)
}

// daemonLog is the pipe that libvirtd writes its log to. It lives as long as the launcher, whose end is the pod's:
// libvirtd is started again with the same pipe, and what else has inherited it never finds it closed.
type daemonLog struct {
	to   *lines
	r, w *os.File
}

func newDaemonLog(to *lines) (*daemonLog, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe for libvirtd's log: %w", err)
	}
	return &daemonLog{to: to, r: r, w: w}, nil
}

// run reads until ctx has ended and all who write have, or linger after it.
func (d *daemonLog) run(ctx context.Context) {
	var ending sync.WaitGroup
	ending.Add(1)
	stop := context.AfterFunc(ctx, func() {
		defer ending.Done()
		// A pipe that cannot be closed or has no deadline has none to wait for.
		_ = errors.Join(d.w.Close(), d.r.SetReadDeadline(time.Now().Add(linger)))
	})
	reader := bufio.NewReaderSize(d.r, maxLine)
	for {
		line, left, err := readBounded(reader)
		d.libvirt(line, left)
		if err != nil {
			break
		}
	}
	if stop() {
		ending.Done()
	}
	ending.Wait()
	_ = d.r.Close() // was only read
}

// readBounded reads a line of at most maxLine, and returns how many bytes of it were left out.
func readBounded(r *bufio.Reader) (line string, left int, err error) {
	b, err := r.ReadSlice('\n')
	line = string(b)
	for errors.Is(err, bufio.ErrBufferFull) {
		b, err = r.ReadSlice('\n')
		left += len(b)
	}
	return line, left, err
}

// libvirt offers a line of libvirtd's log.
func (d *daemonLog) libvirt(line string, left int) {
	if left > 0 {
		line = fmt.Sprintf("%s… (%d bytes left out)", line, left)
	}
	said, ok := parseLibvirt(line)
	if !ok {
		d.to.text("libvirt", line)
		return
	}
	record := slog.NewRecord(said.at, jsonlog.LevelOf(said.level), said.text, 0)
	record.AddAttrs(slog.String(jsonlog.Position, said.where), slog.String(jsonlog.Subcomponent, "libvirt"),
		slog.String("thread", said.thread))
	d.to.offer(record)
}

// libvirtLine is a line of libvirt's log.
type libvirtLine struct {
	at                         time.Time
	thread, level, where, text string
}

// libvirtTime is the layout of libvirt's times.
const libvirtTime = "2006-01-02 15:04:05.000-0700"

// parseLibvirt reads a line such as
//
//	2026-01-02 03:04:05.678+0000: 42: warning : virFunction:123 : what happened
//
// It reports false for others: those of a text of several lines, after its first.
func parseLibvirt(line string) (out libvirtLine, ok bool) {
	at, rest, found := strings.Cut(line, ": ")
	if !found || len(at) != len("2026-01-02 03:04:05.678+0000") {
		return out, false
	}
	var err error
	if out.at, err = time.Parse(libvirtTime, at); err != nil {
		return out, false
	}
	for _, part := range []struct {
		into *string
		end  string
	}{{&out.thread, ": "}, {&out.level, " : "}, {&out.where, " : "}} {
		if *part.into, rest, found = strings.Cut(rest, part.end); !found {
			return out, false
		}
	}
	out.text = strings.TrimSpace(rest)
	return out, true
}

// maxPassed bounds what is passed on of a log at once, bytes: a guest can make QEMU complain as much as it likes.
const maxPassed = 64 << 10

// passed passes the lines of a file on.
type passed struct {
	to                 *lines
	path, subcomponent string
	// at is the offset up to which the file was passed on, bytes.
	at int64
}

// pass passes on what is new. What has no end of line yet waits for it.
func (p *passed) pass() error {
	f, err := os.Open(p.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("look at the log: %w", err)
	}
	if info.Size() < p.at {
		p.at = 0
	}
	if left := info.Size() - p.at - maxPassed; left > 0 {
		p.at += left
		p.to.text(p.subcomponent, fmt.Sprintf("(%d bytes left out)", left))
	}
	b, err := io.ReadAll(io.NewSectionReader(f, p.at, maxPassed))
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	end := strings.LastIndexByte(string(b), '\n') + 1
	if end == 0 && len(b) == maxPassed {
		end = len(b)
	}
	for line := range strings.Lines(string(b[:end])) {
		if len(line) > maxLine {
			line = fmt.Sprintf("%s… (%d bytes left out)", line[:maxLine], len(line)-maxLine)
		}
		p.to.text(p.subcomponent, line)
	}
	p.at += int64(end)
	return nil
}

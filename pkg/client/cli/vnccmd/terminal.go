package vnccmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/muesli/cancelreader"
	"golang.org/x/term"

	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/tui/input"
	"github.com/virtkit/virtkit/pkg/client/tui/screen"
	"github.com/virtkit/virtkit/pkg/stream/rfb"
)

const (
	// askTime is how long a terminal gets to say what it can.
	askTime = time.Second
	// escapeTime is how long an Escape may be the beginning of something.
	escapeTime = 50 * time.Millisecond
	// frameTime is the least between two pictures, sizeTime between two looks at the terminal's size.
	frameTime = 40 * time.Millisecond
	sizeTime  = 250 * time.Millisecond
)

// What is written to the terminal at the beginning: another screen, no cursor, no wrapping, reports of the mouse, marks
// around a paste; and at the end, the other way round. kitty's keyboard protocol is pushed and popped beside it.
const (
	enter = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[?1003h\x1b[?1006h\x1b[?2004h\x1b[2J"
	leave = "\x1b[0m\x1b[?2004l\x1b[?1006l\x1b[?1003l\x1b[?7h\x1b[?25h\x1b[?1049l"

	keyboardOn, keyboardOff = "\x1b[>1u", "\x1b[<u"
	// Synchronized output: the terminal shows all or nothing of a picture.
	beginSync, endSync = "\x1b[?2026h", "\x1b[?2026l"
)

// display is the user's terminal while the guest's screen is on it.
type display struct {
	in      *os.File
	out     io.Writer
	fd      int
	answers screen.Answers
	kind    screen.Kind
	painter screen.Painter

	mu       sync.Mutex
	saved    *term.State
	keyboard bool
}

// restore puts the terminal back; it may be called from any goroutine, more than once.
func (d *display) restore() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.saved == nil {
		return
	}
	var out bytes.Buffer
	d.painter.Clear(&out)
	if d.keyboard {
		out.WriteString(keyboardOff)
	}
	out.WriteString(leave)
	_, _ = d.out.Write(out.Bytes()) // a terminal that is gone needs nothing
	_ = term.Restore(int(d.in.Fd()), d.saved)
	d.saved = nil
}

// onPanic gives the user the terminal back before a panic is reported.
func (d *display) onPanic() {
	if r := recover(); r != nil {
		d.restore()
		panic(r)
	}
}

// terminal draws the guest's screen in the terminal until the user leaves or the session ends.
func (s *session) terminal(ctx context.Context) error {
	in, ok := s.Factory.IO.In.(*os.File)
	out, isFile := s.Factory.IO.RawOut().(*os.File)
	if !ok || !isFile || !s.Factory.IO.InIsTTY || !s.Factory.IO.OutIsTTY {
		return errors.Join(cli.UsageErrorf("--terminal needs a terminal for input and output"), s.first.Close())
	}
	guest, err := rfb.Open(s.first, true)
	if err != nil {
		return errors.Join(s.explain(s.ended(err)), s.first.Close())
	}
	d := &display{in: in, out: out, painter: screen.New(screen.Blocks, false), fd: int(out.Fd())}
	keys, err := cancelreader.NewReader(in)
	if err != nil {
		return errors.Join(fmt.Errorf("read the terminal: %w", err), s.first.Close())
	}
	if d.saved, err = term.MakeRaw(int(in.Fd())); err != nil {
		return errors.Join(fmt.Errorf("switch the terminal to raw mode: %w", err), s.first.Close())
	}
	defer d.restore()
	defer d.onPanic()
	// A broken pipe is then an error rather than the end of the program, which would leave the terminal raw.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGQUIT)
	defer stop()
	if _, err := io.WriteString(out, enter); err != nil {
		return errors.Join(err, s.first.Close())
	}
	v := &view{
		session: s, display: d, guest: guest, typist: &typist{to: guest}, input: make(chan []byte),
		updates: make(chan update),
	}
	err = v.run(ctx, keys)
	d.restore()
	switch {
	case errors.Is(err, errLeft):
		return nil
	case err != nil:
		return s.explain(err)
	}
	s.say("The session with %s has ended.\n", s.target.Name)
	return s.Factory.EndedByItself()
}

// ended returns how a stream's end ends the session: when the guest ends it, that is no error.
func (s *session) ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// view is a session at work: one goroutine reads the keys, one the guest, and run does all else.
type view struct {
	*session
	display *display
	guest   *rfb.Conn
	typist  *typist
	decoder input.Decoder

	input   chan []byte
	updates chan update

	columns, rows int
	layout        screen.Layout
	// due is when the next picture may be drawn; asked that the guest has been asked for more.
	due time.Time
}

// update is one message of the guest, or its end.
type update struct {
	rfb.Update
	err error
}

func (v *view) run(ctx context.Context, keys cancelreader.CancelReader) error {
	ctx, cancel := context.WithCancel(ctx)
	// A write to a guest that does not read ends so, too.
	closed := make(chan struct{})
	context.AfterFunc(ctx, func() {
		defer close(closed)
		_ = v.first.Close()
	})
	var readers sync.WaitGroup
	readers.Go(func() {
		defer v.display.onPanic()
		v.readKeys(ctx, keys)
	})
	readers.Go(func() {
		defer v.display.onPanic()
		v.readGuest(ctx)
	})
	defer func() {
		cancel()
		keys.Cancel()
		<-closed
		readers.Wait()
		_ = keys.Close()
	}()
	if err := v.ask(ctx); err != nil {
		return err
	}
	if err := v.guest.Start(); err != nil {
		return v.ended(err)
	}
	return v.loop(ctx)
}

func (v *view) readKeys(ctx context.Context, keys io.Reader) {
	defer close(v.input)
	for {
		buf := make([]byte, 4096)
		n, err := keys.Read(buf)
		if n > 0 {
			select {
			case v.input <- buf[:n]:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (v *view) readGuest(ctx context.Context) {
	for {
		u, err := v.guest.Next()
		select {
		case v.updates <- update{u, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// ask finds out what the terminal can. Keys that come before its answers are the guest's.
func (v *view) ask(ctx context.Context) error {
	d := v.display
	if _, err := io.WriteString(d.out, screen.Questions); err != nil {
		return err
	}
	timer := time.NewTimer(askTime)
	defer timer.Stop()
	var sent []byte
	for !d.answers.Complete {
		select {
		case chunk, ok := <-v.input:
			if !ok {
				return errLeft
			}
			sent = append(sent, chunk...)
			d.answers = screen.ReadAnswers(sent)
			continue
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		break
	}
	d.kind = d.answers.Best()
	if v.Draw != "auto" {
		d.kind = screen.Kind(v.Draw)
	}
	d.mu.Lock()
	d.painter = screen.New(d.kind, screen.AllColours(v.Factory.Getenv))
	d.keyboard = d.answers.Keyboard
	d.mu.Unlock()
	if d.keyboard {
		if _, err := io.WriteString(d.out, keyboardOn); err != nil {
			return err
		}
	}
	return v.typed(v.decoder.Decode(sent)) // the answers themselves are nothing to the decoder
}

func (v *view) loop(ctx context.Context) error {
	sizes := time.NewTicker(sizeTime)
	defer sizes.Stop()
	escape, frame := time.NewTimer(0), time.NewTimer(0)
	defer escape.Stop()
	defer frame.Stop()
	<-escape.C
	<-frame.C
	if _, err := v.resized(); err != nil {
		return err
	}
	for {
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case chunk, ok := <-v.input:
			if !ok {
				return errLeft // the terminal is gone
			}
			err = v.typed(v.decoder.Decode(chunk))
			if v.decoder.Pending() {
				escape.Reset(escapeTime)
			}
		case <-escape.C:
			err = v.typed(v.decoder.Flush())
		case u := <-v.updates:
			switch {
			case u.err != nil && ctx.Err() != nil:
				return ctx.Err()
			case u.err != nil:
				return v.ended(u.err)
			case u.Bell:
				_, err = io.WriteString(v.display.out, "\a")
			case u.Resized || !u.Changed.Empty():
				frame.Reset(time.Until(v.due))
			default:
				err = v.guest.Request(true)
			}
		case <-frame.C:
			// The next changes are asked for when these are on the screen: a slow terminal is shown fewer pictures.
			if err = v.draw(); err == nil {
				err = v.guest.Request(true)
			}
			v.due = time.Now().Add(frameTime)
		case <-sizes.C:
			var other bool
			if other, err = v.resized(); other && err == nil {
				err = v.draw()
			}
		}
		if err != nil {
			return err
		}
	}
}

func (v *view) typed(events []input.Event) error {
	width, height := v.guest.Size()
	for _, e := range events {
		if err := v.typist.handle(e, v.layout, image.Pt(width, height)); err != nil {
			return err
		}
	}
	return nil
}

// resized looks whether the terminal has another size, and clears it then.
func (v *view) resized() (bool, error) {
	columns, rows, err := term.GetSize(v.display.fd)
	if err != nil {
		return false, fmt.Errorf("find the terminal's size: %w", err)
	}
	if columns == v.columns && rows == v.rows {
		return false, nil
	}
	v.columns, v.rows = columns, rows
	if width, height := windowPixels(v.display.fd); width > 0 && height > 0 {
		v.display.answers.WindowWidth, v.display.answers.WindowHeight = width, height
	}
	v.display.painter.Forget()
	_, err = io.WriteString(v.display.out, "\x1b[2J")
	return true, err
}

// draw brings the terminal up to date: the picture, and the line below it.
func (v *view) draw() error {
	var out bytes.Buffer
	out.WriteString(beginSync)
	v.guest.View(func(picture *image.RGBA) {
		size := picture.Rect.Size()
		layout := screen.Fit(v.display.answers.Window(v.display.kind, v.columns, v.rows), size, 1)
		if layout != v.layout {
			v.layout = layout
			v.display.painter.Forget()
			out.WriteString("\x1b[2J")
		}
		if !layout.Cells.Empty() {
			v.display.painter.Paint(&out, picture, layout)
		}
		out.WriteString(statusLine(v.target.Namespace+"/"+v.target.Name, size, v.columns, v.rows))
	})
	out.WriteString(endSync)
	_, err := v.display.out.Write(out.Bytes())
	return err
}

// statusLine returns the terminal's last line: what is shown, and how to leave.
func statusLine(name string, size image.Point, columns, rows int) string {
	left := fmt.Sprintf(" Ctrl-] leaves  Ctrl-Alt-End is Ctrl-Alt-Del  %s  %d×%d", name, size.X, size.Y)
	text := []rune(left)
	if len(text) > columns {
		text = text[:columns]
	}
	return fmt.Sprintf("\x1b[%d;1H\x1b[0;7m%s%s\x1b[0m", rows, string(text), strings.Repeat(" ", columns-len(text)))
}

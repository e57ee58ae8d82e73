package terminal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/virtkit/virtkit/pkg/client/printable"
)

// maxAnswer bounds what a user types, in bytes.
const maxAnswer = 4096

// Keys that edit an answer.
const (
	keyInterrupt = 0x03
	keyEnd       = 0x04
	keyBackspace = 0x08
	keyClear     = 0x15
	keyDelete    = 0x7f
)

// Ask asks a question and reads a line, which is shown while it is typed if shown says so. The user's Ctrl-C is
// context.Canceled, as is the end of ctx.
func (t *Terminal) Ask(ctx context.Context, question string, shown bool) (string, error) {
	if !t.is {
		return "", errors.New("there is no terminal to ask at")
	}
	// Raw comes first: what is typed as soon as the question is there must not be echoed, nor its Ctrl-C be a signal.
	if err := t.Raw(); err != nil {
		return "", err
	}
	defer func() {
		t.Restore()
		fmt.Fprintln(t.streams.ErrOut)
	}()
	fmt.Fprint(t.streams.RawErr(), strings.ReplaceAll(printable.Text(question), "\n", "\r\n"))
	in, stop := Cancellable(t.streams.In)
	if stop != nil {
		defer context.AfterFunc(ctx, stop)()
	}
	if closer, ok := in.(*stoppable); ok {
		defer closer.Close()
	}
	show := io.Discard
	if shown {
		show = t.streams.RawErr()
	}
	return answer(ctx, in, show)
}

// answer reads keys of a raw terminal up to Enter.
func answer(ctx context.Context, in io.Reader, show io.Writer) (string, error) {
	var typed []byte
	erase := func() {
		_, n := utf8.DecodeLastRune(typed)
		typed = typed[:len(typed)-n]
		if n > 0 {
			fmt.Fprint(show, "\b \b")
		}
	}
	for one := make([]byte, 1); ; {
		n, err := in.Read(one)
		switch {
		case n == 0 && ctx.Err() != nil:
			return "", ctx.Err()
		case n == 0 && err != nil:
			return "", err
		case n == 0:
		case one[0] == '\r', one[0] == '\n':
			return string(typed), nil
		case one[0] == keyInterrupt:
			return "", context.Canceled
		case one[0] == keyEnd && len(typed) == 0:
			return "", io.EOF
		case one[0] == keyBackspace, one[0] == keyDelete:
			erase()
		case one[0] == keyClear:
			for len(typed) > 0 {
				erase()
			}
		case one[0] >= ' ' && len(typed) < maxAnswer:
			typed = append(typed, one[0])
			if _, err := show.Write(one); err != nil {
				return "", err
			}
		}
	}
}

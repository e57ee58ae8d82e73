package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// CanAsk reports whether there is somebody to answer a question.
func (s *IOStreams) CanAsk() bool { return s.InIsTTY && s.ErrIsTTY }

// Confirm asks at the terminal, which must be there (CanAsk), and reports whether the answer is yes. It returns with
// the error of ctx when that ends first.
func Confirm(ctx context.Context, streams *IOStreams, question string) (bool, error) {
	fmt.Fprint(streams.ErrOut, question+" [y/N] ")
	type reply struct {
		text string
		err  error
	}
	// The read cannot be interrupted; when ctx ends first the process does, too.
	replies := make(chan reply, 1)
	go func() {
		text, err := bufio.NewReader(streams.In).ReadString('\n')
		replies <- reply{text, err}
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(streams.ErrOut)
		return false, ctx.Err()
	case r := <-replies:
		if r.err != nil && !errors.Is(r.err, io.EOF) {
			return false, fmt.Errorf("read the answer: %w", r.err)
		}
		switch strings.ToLower(strings.TrimSpace(r.text)) {
		case "y", "yes":
			return true, nil
		}
		return false, nil
	}
}

// MustConfirm asks as Confirm does; any answer but yes is an error.
func MustConfirm(ctx context.Context, streams *IOStreams, question string) error {
	yes, err := Confirm(ctx, streams, question)
	if err == nil && !yes {
		err = &ExitError{Code: ExitFailure, Err: errors.New("not confirmed; nothing was done")}
	}
	return err
}

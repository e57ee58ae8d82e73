package reach

import (
	"context"
	"errors"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// first returns the connection of the dial that is the first to succeed. The next dial begins when all before it have
// failed, or headStart after the last one began. The others are cancelled then, and waited for. When all fail, it is
// the error that says most.
func first(ctx context.Context, dials []func(context.Context) (net.Conn, error)) (net.Conn, error) {
	type outcome struct {
		conn net.Conn
		err  error
	}
	dialling, cancel := context.WithCancel(ctx)
	defer cancel()
	outcomes := make(chan outcome, len(dials))
	late := time.NewTimer(headStart)
	defer late.Stop()
	running := 0
	begin := func() {
		dial := dials[0]
		dials = dials[1:]
		running++
		late.Reset(headStart)
		go func() {
			conn, err := dial(dialling)
			outcomes <- outcome{conn, err}
		}()
	}
	var made net.Conn
	var failed error
	begin()
	for running > 0 {
		select {
		case <-late.C:
			if len(dials) > 0 {
				begin()
			}
			continue
		case o := <-outcomes:
			running--
			switch {
			case o.err != nil:
				failed = worst(failed, o.err)
			case made != nil: // it was made before it was cancelled
				o.conn.Close()
			default:
				made, dials = o.conn, nil
				cancel()
			}
		}
		if running == 0 && len(dials) > 0 && ctx.Err() == nil {
			begin()
		}
	}
	if made != nil {
		return made, nil
	}
	return nil, failed
}

// worst returns which of two dials' errors says more: that an address is not the guest's to have, then what the guest
// itself answered, then that of the family that was tried first.
func worst(a, b error) error {
	for _, says := range []func(error) bool{
		func(err error) bool { return errors.As(err, new(*AddressError)) },
		func(err error) bool { return errors.Is(err, unix.ECONNREFUSED) },
	} {
		switch {
		case says(a):
			return a
		case says(b):
			return b
		}
	}
	if a == nil {
		return b
	}
	return a
}

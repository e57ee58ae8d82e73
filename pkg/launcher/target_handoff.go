package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"time"

	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/launcher/lifecycle"
	"github.com/virtkit/virtkit/pkg/names"
)

// listenForSource makes the socket on which the launcher that the guest leaves reaches this one.
func (s *service) listenForSource() (net.Listener, error) {
	return listen(filepath.Join(s.options.RunDir, names.SocketMigrationHandoffIn))
}

// serveSource answers those who want to know when the guest is here, until it runs here and the launcher that it left
// knows, or ctx ends.
func (s *service) serveSource(ctx context.Context, listener net.Listener) {
	ctx, cancel := context.WithCancel(ctx)
	var reporting sync.WaitGroup
	reporting.Go(func() { s.guest.reportNeverRan(ctx) })
	defer reporting.Wait()
	defer cancel()
	defer listener.Close()
	defer context.AfterFunc(ctx, func() { listener.Close() })()
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		err = s.askToTakeOver(ctx, conn)
		conn.Close()
		if err == nil && s.guest.mayHaveRun() {
			return
		}
		if err == nil {
			continue // it may not have been heard that the guest has ended
		}
		s.options.Log.Info("the launcher that the guest leaves does not say that it has let it go", "err", err)
	}
}

// askToTakeOver waits for the guest, has it started once the source has released it, and reports that.
func (s *service) askToTakeOver(ctx context.Context, conn net.Conn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	// The other side says nothing before it is asked, so what is read is the answer or its end.
	answer := make(chan error, 1)
	var word string
	go func() {
		var err error
		word, err = readWord(conn)
		answer <- err
	}()
	say := func(word string) error {
		_, err := io.WriteString(conn, word+"\n")
		return err
	}
	select {
	case <-s.guest.here:
		if s.guest.mayHaveRun() {
			err := errors.Join(say(wordRunning), conn.Close()) // it was not heard the first time
			if end := <-answer; end != nil {
				s.guest.log.Debug("the other launcher has heard that the guest runs", "end", end)
			}
			return err
		}
		if s.guest.neverRanHere() {
			return s.sayDead(say, conn, answer)
		}
		if err := say(wordArrived); err != nil {
			return errors.Join(err, conn.Close(), <-answer)
		}
		select {
		case <-s.guest.died:
			return s.sayDead(say, conn, answer)
		case err := <-answer:
			if err != nil {
				return err
			}
		}
	case err := <-answer:
		if err != nil {
			return err
		}
		// libvirt there was faster; libvirt's event has yet to come here.
		select {
		case <-s.guest.here:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if word != wordRun && word != wordStay {
		return fmt.Errorf("unexpected handoff message %q", word)
	}
	if s.guest.neverRanHere() {
		return say(wordDead)
	}
	if err := s.guest.takeOver(ctx, word == wordStay); err != nil {
		return err
	}
	if !s.guest.mayHaveRun() {
		return say(wordDead)
	}
	return say(wordRunning)
}

// sayDead reports to the source that the guest has ended here without having run, and waits until it has heard.
func (s *service) sayDead(say func(string) error, conn net.Conn, answer <-chan error) error {
	if err := say(wordDead); err != nil {
		return errors.Join(err, conn.Close(), <-answer)
	}
	if err := conn.SetReadDeadline(time.Now().Add(steerTimeout)); err != nil {
		return errors.Join(err, conn.Close(), <-answer)
	}
	if err := <-answer; err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// TakeOver implements the contract. To the launcher that the guest leaves it says that the other one's guest has ended
// without having run.
func (s *service) TakeOver(ctx context.Context, req *pb.TakeOverRequest) (*pb.TakeOverResponse, error) {
	if s.guest.decide(wordDead) {
		return &pb.TakeOverResponse{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, steerTimeout)
	defer cancel()
	return &pb.TakeOverResponse{}, s.guest.takeOver(ctx, req.Paused)
}

// neverRanPatience is the time that a launcher whose guest has ended before it was started stays to report that.
const neverRanPatience = 5 * time.Second

// reportNeverRan ends the launcher after neverRanPatience: its termination message says the same.
func (g *guest) reportNeverRan(ctx context.Context) {
	select {
	case <-g.died:
	case <-ctx.Done():
		return
	}
	select {
	case <-time.After(neverRanPatience):
	case <-ctx.Done():
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.reportNeverRanLocked()
}

// reportNeverRanLocked reports the end of a guest that was received and has not run, if it was kept back.
func (g *guest) reportNeverRanLocked() {
	if g.life.Now() == lifecycle.NeverRan {
		g.endLocked(*g.early)
	}
}

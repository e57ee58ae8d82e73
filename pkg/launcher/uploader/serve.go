package uploader

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

const (
	// orderTime is the time in which a client must send its order.
	orderTime = 10 * time.Second
	// reportEvery is the least time between two reports of the state to a sender.
	reportEvery = 250 * time.Millisecond
	// maxClients bounds how many connections are open.
	maxClients = 16
)

// sender is a connection over which bytes come.
type sender struct {
	session string
	conn    net.Conn
	done    chan struct{}
}

// serve answers connections until the listener is closed, and waits for those that are open.
func (u *upload) serve(listener net.Listener) {
	var clients sync.WaitGroup
	defer clients.Wait()
	room := make(chan struct{}, maxClients)
	for {
		conn, err := listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // of many connections, which end
			u.Log.Warn("a connection is not taken", "err", err)
			<-time.After(reportEvery)
			continue
		}
		select {
		case room <- struct{}{}:
		default:
			_ = conn.Close() // it may try again
			continue
		}
		clients.Go(func() {
			defer func() { <-room }()
			defer conn.Close()
			u.client(conn)
		})
	}
}

// client serves one connection.
func (u *upload) client(conn net.Conn) {
	if conn.SetReadDeadline(time.Now().Add(orderTime)) != nil {
		return
	}
	in := bufio.NewReaderSize(conn, chunk)
	order, err := readOrder(in)
	if err != nil {
		return // nobody of ours
	}
	if !order.Send {
		u.say(conn, uploads.Reply{State: u.now()})
		return
	}
	s := &sender{session: order.Session, conn: conn, done: make(chan struct{})}
	if why := u.admit(s); why != "" {
		u.say(conn, uploads.Reply{State: u.now(), Refused: why})
		return
	}
	defer u.leave(s)
	if conn.SetReadDeadline(time.Time{}) != nil || !u.say(conn, uploads.Reply{State: u.now()}) {
		return
	}
	var reporting sync.WaitGroup
	gone := make(chan struct{})
	reporting.Go(func() { u.report(conn, gone) })
	u.receive(in)
	// All has come, or the client has gone, or nothing more is wanted of it. It gets the final state.
	if u.now().Phase == uploads.Receiving {
		close(gone)
	}
	reporting.Wait()
}

// readOrder reads the first line of a client; what follows it is left.
func readOrder(in *bufio.Reader) (uploads.Order, error) {
	var order uploads.Order
	line, err := readLine(in)
	if err == nil {
		err = json.Unmarshal(line, &order)
	}
	return order, errors.Join(err, uploads.CheckSession(order.Session))
}

// readLine reads a line of bounded length.
func readLine(in *bufio.Reader) ([]byte, error) {
	var line []byte
	for len(line) < uploads.MaxLine {
		b, err := in.ReadByte()
		if err != nil || b == '\n' {
			return line, err
		}
		line = append(line, b)
	}
	return nil, bufio.ErrTooLong
}

// admit makes a connection the one that sends, or says why it is not. A client takes the place of its own connection.
func (u *upload) admit(s *sender) (refused string) {
	for {
		u.mu.Lock()
		old, phase := u.sender, u.state.Phase
		if u.image != nil && phase == uploads.Receiving {
			u.mu.Unlock()
			return "the image comes from a container image: no bytes are taken of a client"
		}
		if old == nil && phase == uploads.Receiving {
			u.sender = s
			u.mu.Unlock()
			return ""
		}
		u.mu.Unlock()
		switch {
		case phase.Final() || phase == uploads.Converting:
			return ""
		case old != nil && (old.session == "" || old.session != s.session):
			return "another client sends this image at the moment: wait for it, or end it"
		}
		_ = old.conn.Close() // its goroutine sees it
		<-old.done
	}
}

func (u *upload) leave(s *sender) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.sender == s {
		u.sender, u.heard = nil, time.Now()
	}
	close(s.done)
}

// receive takes bytes until all and their checksum are there, or the connection ends.
func (u *upload) receive(in io.Reader) {
	buffer := make([]byte, chunk)
	var sum []byte
	for {
		state := u.now()
		if state.Phase != uploads.Receiving {
			return
		}
		left := state.Size - state.Received
		if left == 0 && len(sum) == uploads.SumSize {
			u.intake.finish(string(sum))
			// From here on the disk is made, whatever becomes of the client.
			u.change(func(s *uploads.State) { s.Phase = uploads.Converting })
			return
		}
		room := buffer[:min(left, chunk)]
		if left == 0 {
			room = buffer[:uploads.SumSize-len(sum)]
		}
		n, err := in.Read(room)
		if left == 0 {
			sum = append(sum, room[:n]...)
		} else if n > 0 {
			u.mu.Lock()
			u.heard = time.Now()
			u.mu.Unlock()
			if err := u.intake.take(room[:n]); err != nil {
				u.fail(err)
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// report sends each new state, to the final one, or until the client has gone.
func (u *upload) report(conn net.Conn, gone <-chan struct{}) {
	for {
		u.mu.Lock()
		state, changed := u.state, u.changed
		u.mu.Unlock()
		if !u.say(conn, uploads.Reply{State: state}) {
			return // it may have sent before it left
		}
		if state.Phase.Final() {
			_ = conn.Close() // ends who reads from it
			return
		}
		select {
		case <-gone:
			return
		case <-u.ended:
			continue
		case <-time.After(reportEvery):
		}
		select {
		case <-gone:
			return
		case <-u.ended:
		case <-changed:
		}
	}
}

// say writes a line, and reports whether it was taken.
func (u *upload) say(conn net.Conn, reply uploads.Reply) bool {
	if conn.SetWriteDeadline(time.Now().Add(linger)) != nil {
		return false
	}
	_, err := conn.Write([]byte(uploads.Encode(reply) + "\n"))
	return err == nil
}

package machine

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/crypto/ssh"
	"golang.org/x/term"
)

// followSize tells the session when the terminal's size changes, until the returned function is called.
func followSize(fd int, session *ssh.Session) (stop func()) {
	changed, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(changed, syscall.SIGWINCH)
	go func() {
		for {
			select {
			case <-done:
				return
			case <-changed:
				if columns, rows, err := term.GetSize(fd); err == nil {
					_ = session.WindowChange(rows, columns) // fails only when the session has ended
				}
			}
		}
	}()
	return func() {
		signal.Stop(changed)
		close(done)
	}
}

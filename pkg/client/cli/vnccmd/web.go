package vnccmd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"

	"github.com/virtkit/virtkit/pkg/client/action/vnc"
	"github.com/virtkit/virtkit/pkg/client/action/vnc/novnc"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// web serves the page until the user interrupts.
func (s *session) web(ctx context.Context) (err error) {
	files, err := novnc.Open()
	if err != nil {
		return errors.Join(fmt.Errorf("--web: %w", err), s.first.Close())
	}
	w := &vnc.Web{
		Dial: s.dial, Machine: s.target.Namespace + "/" + s.target.Name, NoVNC: files,
		Token: secret(), Session: secret(),
	}
	l, err := s.listen(ctx, "127.0.0.1", "the page")
	if err != nil {
		return err
	}
	port := l.Addr().(*net.TCPAddr).Port
	url := w.URL(port)
	if s.Output.Given() {
		err = s.Output.Print(vnc.NewSessionReport(s.target.Namespace, s.target.Name, "127.0.0.1", port, url),
			s.Factory.IO.Out)
	} else {
		_, err = fmt.Fprintln(s.Factory.IO.Out, url)
	}
	if err != nil {
		return errors.Join(err, l.Close(), s.first.Close())
	}
	if s.browses() {
		remove, err := openBrowser(ctx, url)
		if err != nil {
			s.say("No browser was started: %s. Open the address above.\n", err)
		}
		if remove != nil {
			defer remove()
		}
	}
	s.say("Showing %s in the browser. The address works once. Press Ctrl-C to end.\n", s.target.Name)
	if err := w.Serve(ctx, l, s.first); err != nil {
		return err
	}
	return ctx.Err() // interrupted, as there is no other end
}

// browses reports whether there is a user with a desktop to start a browser for.
func (s *session) browses() bool {
	if s.NoBrowser || !s.Factory.IO.ErrIsTTY {
		return false
	}
	return hasDesktop(runtime.GOOS, s.Factory.Getenv)
}

func hasDesktop(system string, getenv func(string) string) bool {
	switch system {
	case "darwin", "windows":
		return true
	}
	return (getenv("DISPLAY") != "" || getenv("WAYLAND_DISPLAY") != "") && getenv("SSH_CONNECTION") == ""
}

// openBrowser starts the user's browser. The address has a secret, which every user of the machine could read on a
// command line, so the browser is given a file of the user's own that leads there; remove removes it.
func openBrowser(ctx context.Context, url string) (remove func(), err error) {
	file, err := os.CreateTemp("", "virtctl-*.html")
	if err != nil {
		return nil, err
	}
	remove = func() { _ = os.Remove(file.Name()) } // a leftover has a token that is no good
	// The address is made of digits and letters: nothing to escape.
	_, err = fmt.Fprintf(file, "<!doctype html><meta charset=utf-8><meta http-equiv=refresh content='0;url=%s'><a "+
		"href='%[1]s'>virtctl vnc</a>\n", url)
	if err := errors.Join(err, file.Close()); err != nil {
		return remove, err
	}
	var program []string
	switch runtime.GOOS {
	case "darwin":
		program = []string{"open"}
	case "windows":
		program = []string{"rundll32", "url.dll,FileProtocolHandler"}
	default:
		program = []string{"xdg-open"}
	}
	cmd := exec.CommandContext(ctx, program[0], append(program[1:], file.Name())...)
	if err := cmd.Run(); err != nil {
		return remove, fmt.Errorf("%s: %w", program[0], err)
	}
	return remove, nil
}

// secret returns 256 random bits, in hex.
func secret() string {
	b := make([]byte, 32)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

func (o *Options) validateWeb() error {
	switch {
	case !o.Web && o.NoBrowser:
		return cli.UsageErrorf("--no-browser needs --web")
	case o.Web && o.Address != "127.0.0.1" && o.Address != "localhost":
		return cli.UsageErrorf("--web serves this machine only, not --address %s; use ssh -L to reach it from "+
			"another", o.Address)
	}
	return nil
}

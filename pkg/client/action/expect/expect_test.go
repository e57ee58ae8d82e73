package expect

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/virtkit/virtkit/pkg/client/action"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeConsole is a guest that answers each line, and says hello first.
type fakeConsole struct {
	io.Reader
	io.Writer
	close func()
}

func (c *fakeConsole) Close() error { c.close(); return nil }

// newConsole runs guest with its end of the console.
func newConsole(guest func(in io.Reader, out io.WriteCloser)) *fakeConsole {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	go guest(inR, outW)
	return &fakeConsole{
		Reader: outR, Writer: inW,
		close: func() { inR.CloseWithError(net.ErrClosed); outR.CloseWithError(net.ErrClosed) },
	}
}

// shell is a guest with a login.
func shell(in io.Reader, out io.WriteCloser) {
	defer out.Close()
	say := func(text string) bool { _, err := io.WriteString(out, text); return err == nil }
	if !say("booting\r\ndemo login: ") {
		return
	}
	var line []byte
	state := "login"
	for one := make([]byte, 1); ; {
		if _, err := in.Read(one); err != nil {
			return
		}
		if one[0] != '\r' {
			line = append(line, one[0])
			continue
		}
		typed := string(line)
		line = nil
		var answer string
		switch {
		case state == "login":
			state, answer = "password", "Password: "
		case state == "password" && typed == "secret":
			state, answer = "shell", "\r\nwelcome\r\n# "
		case state == "password":
			state, answer = "login", "\r\nLogin incorrect\r\ndemo login: "
		case typed == "poweroff":
			say("bye\r\n")
			return
		case typed == "uname":
			answer = "kernel 6.12.3-x\r\n# "
		case typed == "more":
			answer = "one\r\n--More--"
		case typed == " ":
			answer = "two\r\n# "
		case typed == "silence":
			continue
		default:
			answer = typed + "\r\n# "
		}
		if !say(answer) {
			return
		}
	}
}

const login = `
# a comment
expect "login: "
send "root\r"
expect /[Pp]assword: $/ 10s   # a comment, too
send-secret "$password\r"
on /Login incorrect/ do exit 4
expect '# '
`

func playOn(t *testing.T, script string, o Options, guest func(io.Reader, io.WriteCloser)) (*Transcript, error) {
	t.Helper()
	s, err := Parse("test", strings.NewReader(script))
	if err != nil {
		t.Fatal(err)
	}
	o.Now = time.Now
	return s.Run(t.Context(), newConsole(guest), o)
}

func TestRun(t *testing.T) {
	for _, test := range []struct {
		name, script, password, err string
		code                        int
		is                          error
		check                       func(t *testing.T, tr *Transcript)
	}{
		{name: "end", script: login, check: func(t *testing.T, tr *Transcript) {
			if len(tr.Steps) != 5 || tr.Steps[0].Output != "booting\r\ndemo login: " || tr.Steps[3].Sent != "***" {
				t.Errorf("%+v", tr.Steps)
			}
		}},
		{
			name: "wrong password", script: login, password: "wrong", code: 4, is: &ExitError{4},
			err: "the script ended with code 4",
		},
		{name: "groups", script: login + `
send "uname\r"
expect /kernel (?P<version>[\d.]+)-(\w)/
print "it is $version, ${2}, \$5"
set word "a${version}b"
send "$word\r"
expect "a6.12.3b\r\n"
exit 0
send "never"`, check: func(t *testing.T, tr *Transcript) {
			printed := ""
			for _, s := range tr.Steps {
				printed += s.Printed
			}
			if printed != "it is 6.12.3, x, $5" {
				t.Errorf("printed %q", printed)
			}
			if got := tr.Steps[len(tr.Steps)-1].Statement; got != "exit 0" {
				t.Errorf("the last step is %q", got)
			}
		}},
		{name: "on", script: login + `on "--More--" do send " \r"
send "more\r"
expect /two/`},
		{name: "exit", script: `exit 42`, code: 42, is: &ExitError{42}, err: "the script ended with code 42"},
		{
			name: "guest ends", script: login + "send \"poweroff\\r\"\nexpect /never/", code: 1,
			err: "line 10: the console ended while waiting for /never/",
		},
		{name: "eof", script: login + "send \"poweroff\\r\"\nexpect eof"},
		{name: "no variable", script: `send "$x"`, code: 1, err: "line 1: variable $x has no value"},
		{
			name: "timeout", script: login + "timeout 2m\nsend \"silence\\r\"\nexpect /never/", code: 8,
			is: action.ErrTimeout, err: "line 11: timed out waiting 2m0s for /never/",
		},
		{
			name: "own timeout", script: "expect /never/ 7", code: 8, is: action.ErrTimeout,
			err: "timed out waiting 7s for /never/; the guest's last words: \"booting\\r\\ndemo login: \"",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				password := test.password
				if password == "" {
					password = "secret"
				}
				tr, err := playOn(t, test.script, Options{Variables: map[string]string{"password": password}}, shell)
				switch {
				case test.err == "" && err != nil,
					test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
					t.Errorf("error %v, want %q", err, test.err)
				}
				if exit := (*ExitError)(nil); errors.As(test.is, &exit) {
					if got := (*ExitError)(nil); !errors.As(err, &got) || got.Code != exit.Code {
						t.Errorf("error %v", err)
					}
				} else if test.is != nil && !errors.Is(err, test.is) {
					t.Errorf("error %v is not %v", err, test.is)
				}
				if tr.ExitCode != test.code {
					t.Errorf("code %d, want %d", tr.ExitCode, test.code)
				}
				if test.check != nil {
					test.check(t, tr)
				}
			})
		})
	}
}

func TestParseErrors(t *testing.T) {
	for script, want := range map[string]string{
		"\nsend hello":              `test:2: a text in quotes is missing`,
		`wait 5`:                    `unknown statement "wait"`,
		`send "a`:                   `no " at the end`,
		`send 'a`:                   `no ' at the end`,
		`send "\q"`:                 `unknown escape \q`,
		`send "\xzz"`:               `bad escape \x`,
		`send "a" "b"`:              `after the end of send`,
		`send "$"`:                  `write \$ for a dollar`,
		`expect /a(/`:               `missing closing )`,
		`expect /a*/`:               `matches nothing at all`,
		`expect /a`:                 `no / at the end`,
		`expect ""`:                 `nothing to expect`,
		`expect "$x"`:               `an expect takes no variables`,
		`expect "a" soon`:           `not a duration`,
		`timeout -1s`:               `not a duration`,
		`exit 256`:                  `exit needs a code from 0 to 255`,
		`on /a/ send "b"`:           `on needs a statement`,
		`on /a/ do expect /b/`:      `on cannot do expect`,
		`set 1 "a"`:                 `not a variable's name`,
		strings.Repeat("x", 70<<10): `a line of more than`,
	} {
		_, err := Parse("test", strings.NewReader(script))
		var bad *ParseError
		if err == nil || !strings.Contains(err.Error(), want) || !errors.As(err, &bad) {
			t.Errorf("%.40q: error %v, want %q", script, err, want)
		}
	}
}

// A guest that floods, or that an `on` keeps answering, costs a bounded amount of memory and time.
func TestHostileGuest(t *testing.T) {
	flood := func(_ io.Reader, out io.WriteCloser) {
		defer out.Close()
		junk := bytes.Repeat([]byte("\xffabc\x1b[0m"), 8<<10)
		for range 64 {
			if _, err := out.Write(junk); err != nil {
				return
			}
		}
	}
	tr, err := playOn(t, `expect "needle" 60s`, Options{}, flood)
	if err == nil || !strings.Contains(err.Error(), "the console ended") {
		t.Error(err)
	}
	if got := len(tr.Steps[0].Output); got > 4*maxOutput || !tr.Steps[0].Truncated {
		t.Errorf("%d bytes of output are kept, truncated %v", got, tr.Steps[0].Truncated)
	}
	echo := func(in io.Reader, out io.WriteCloser) {
		defer out.Close()
		if _, err := io.WriteString(out, "x"); err == nil {
			_, err = io.Copy(out, in)
			if err != nil {
				return
			}
		}
	}
	_, err = playOn(t, "on /x/ do send \"x\"\nexpect \"needle\" 60s", Options{}, echo)
	if err == nil || !strings.Contains(err.Error(), "answering itself") {
		t.Error(err)
	}
}

// A guest that takes no input is a time-out, and a user's Ctrl-C ends a wait.
func TestStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deaf := func(_ io.Reader, out io.WriteCloser) {}
		if _, err := playOn(t, `send "x"`, Options{Timeout: 3 * time.Second}, deaf); !errors.Is(err,
			action.ErrTimeout) {
			t.Error(err)
		}
		s, err := Parse("test", strings.NewReader(`expect "never"`))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		tr, err := s.Run(ctx, newConsole(deaf), Options{Now: time.Now})
		if !errors.Is(err, context.Canceled) || tr.ExitCode != 130 {
			t.Error(err, tr.ExitCode)
		}
	})
}

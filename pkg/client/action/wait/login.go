package wait

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"regexp"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/stream"
)

// LoginPrompt matches the line with which getty asks for a name, also when the kernel, a service or somebody's name
// follows on it. "Last login: …" is none.
var LoginPrompt = regexp.MustCompile(`(?m)^[^\n]*\blogin: *(?:$|\[ *\d+\.\d+\])|^[a-z0-9][A-Za-z0-9.-]* login: `)

// ConsoleTail is how much of what the guest wrote before, in bytes, is to be looked at.
const ConsoleTail = 64 << 10

// overlap is how much of what has been looked at is looked at again, since a prompt may come in pieces.
const overlap = 1024

// escapes are what terminals interpret and a pattern should not have to: CSI and OSC sequences, and carriage
// returns.
var escapes = regexp.MustCompile(
	`\x1b\[[0-9;?=>]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()][A-Z0-9]|\x1b[=>78cDEHM]|\r`,
)

// ending matches what guests and firmware write when a guest goes down or comes up, so that a prompt before it is of
// an earlier life: the kernel's last and first lines, systemd's and BusyBox' words, and those of SeaBIOS, UEFI and boot
// loaders.
var ending = regexp.MustCompile(
	`(?m)reboot: |The system is going down|Requesting system |Sent SIGTERM to all|systemd-shutdown|Reached target .*(?i:reboot|power-?off|shutdown)|Linux version \d|Decompressing Linux|SeaBIOS|BdsDxe: |iPXE |GRUB`,
)

// shows reports whether the guest shows the prompt: it is there, and nothing after it says that the guest began anew.
func shows(text []byte, prompt *regexp.Regexp) bool {
	text = escapes.ReplaceAll(text, nil)
	if marks := ending.FindAllIndex(text, -1); marks != nil {
		text = text[marks[len(marks)-1][0]:]
	}
	return prompt.Match(text)
}

// Login waits until the guest's console shows prompt; one from before a restart of the guest does not count. dial opens
// the console beside whoever uses it, beginning with the last ConsoleTail bytes since the guest was reset; it is called
// again when the console ends, since a guest may restart. It returns what the console showed last, up to ConsoleTail
// bytes.
func Login(
	ctx context.Context, api API, dial func(context.Context) (io.ReadCloser, error), namespace, name string,
	prompt *regexp.Regexp,
) (State, string, error) {
	var shown string
	for {
		state, err := Until(ctx, api, namespace, name, Running())
		if err != nil {
			return state, shown, err
		}
		conn, err := dial(ctx)
		if err == nil {
			var found bool
			shown, found = read(ctx, conn, prompt)
			if found {
				return state, shown, nil
			}
		} else if !retry(err) {
			return state, shown, fmt.Errorf("console of %s/%s: %w", namespace, name, err)
		}
		if action.Sleep(ctx, retryAfter) != nil {
			if ctx.Err() == context.Canceled {
				return state, shown, ctx.Err()
			}
			return late(ctx, api, state, namespace, name, shown)
		}
	}
}

// presentLimit bounds how long it is asked how things stand when the time is up.
const presentLimit = 5 * time.Second

// late returns the end of a Login whose time is up, with the present state: the guest may have gone on, or away, since
// before. A cluster that gives no answer leaves the state from before.
func late(ctx context.Context, api API, before State, namespace, name, shown string) (State, string, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), presentLimit)
	defer cancel()
	w := &watcher{api: api, namespace: namespace, name: name}
	state, said := before, "when it was last seen, "+Describe(before)
	if _, err := w.list(ctx); err == nil {
		state, said = w.state, Describe(w.state)
	}
	return state, shown, fmt.Errorf("%w waiting for VM %s/%s to show a login prompt: %s; %s", action.ErrTimeout,
		namespace, name, said, lastLine(shown))
}

// retry reports whether a refused console may be granted later: the guest is between two lives, or a
// component restarts.
func retry(err error) bool {
	return apierrors.IsNotFound(err) || stream.NotYet(err) || client.Passing(err)
}

// read reads conn until the prompt shows, the stream ends or ctx does, and closes it.
func read(ctx context.Context, conn io.ReadCloser, prompt *regexp.Regexp) (string, bool) {
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer func() {
		if stop() {
			conn.Close()
		}
	}()
	var seen []byte
	buf := make([]byte, 16<<10)
	for {
		n, err := conn.Read(buf)
		seen = append(seen, buf[:n]...)
		if over := len(seen) - ConsoleTail; over > 0 {
			seen = seen[over:]
		}
		if shows(seen[max(0, len(seen)-n-overlap):], prompt) {
			return string(escapes.ReplaceAll(seen, nil)), true
		}
		if err != nil {
			return string(escapes.ReplaceAll(seen, nil)), false
		}
	}
}

// lastLine returns what a console showed last.
func lastLine(text string) string {
	lines := bytes.Split(bytes.TrimSpace([]byte(text)), []byte("\n"))
	last := bytes.TrimSpace(lines[len(lines)-1])
	if len(last) == 0 {
		return "its console has shown nothing"
	}
	return fmt.Sprintf("its console's last line is %q", last)
}

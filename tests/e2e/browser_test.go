//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

// browser is a headless Chromium with one page, driven through its DevTools protocol.
type browser struct {
	t    *testing.T
	ws   *websocket.Conn
	next int
	// said is what the page has written to its console, and what it was refused.
	said []string
}

func startBrowser(t *testing.T) *browser {
	t.Helper()
	profile := t.TempDir()
	cmd := exec.Command("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
		"--window-size=1000,700", "--user-data-dir="+profile, "--remote-debugging-port=0", "about:blank")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start chromium: %v; dev/deps.sh e2e installs it", err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // with its helpers, which write to the profile
		_ = cmd.Wait()
	})
	var port, path string
	eventually(t, time.Minute, "chromium listens", func() string {
		data, err := os.ReadFile(filepath.Join(profile, "DevToolsActivePort"))
		lines := strings.Fields(string(data))
		if err != nil || len(lines) < 2 {
			return fmt.Sprintf("%v %q", err, data)
		}
		port, path = lines[0], lines[1]
		return ""
	})
	ws, _, err := websocket.DefaultDialer.DialContext(t.Context(), "ws://127.0.0.1:"+port+path, nil) //nolint:bodyclose // the websocket library has read and closed it
	if err != nil {
		t.Fatalf("connect to chromium: %v", err)
	}
	t.Cleanup(func() { ws.Close() })
	b := &browser{t: t, ws: ws}
	return b
}

// page opens an address in a tab of its own, and gives the tab's session.
func (b *browser) page(url string) string {
	b.t.Helper()
	var target struct{ TargetID string }
	b.call("", "Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var session struct{ SessionID string }
	b.call("", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &session)
	b.call(session.SessionID, "Runtime.enable", nil, nil)
	b.call(session.SessionID, "Log.enable", nil, nil)
	b.call(session.SessionID, "Page.navigate", map[string]any{"url": url}, nil)
	return session.SessionID
}

// call asks and waits for the answer; events that come meanwhile are kept if they are messages.
func (b *browser) call(session, method string, params any, result any) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 30*time.Second)
	defer cancel()
	deadline, _ := ctx.Deadline()
	b.next++
	request := map[string]any{"id": b.next, "method": method}
	if params != nil {
		request["params"] = params
	}
	if session != "" {
		request["sessionId"] = session
	}
	if err := b.ws.WriteJSON(request); err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
	if err := b.ws.SetReadDeadline(deadline); err != nil {
		b.t.Fatal(err)
	}
	for {
		var answer struct {
			ID     int
			Method string
			Params json.RawMessage
			Result json.RawMessage
			Error  *struct{ Message string }
		}
		if err := b.ws.ReadJSON(&answer); err != nil {
			b.t.Fatalf("%s: %v", method, err)
		}
		switch {
		case answer.Method == "Runtime.consoleAPICalled", answer.Method == "Log.entryAdded",
			answer.Method == "Runtime.exceptionThrown":
			b.said = append(b.said, string(answer.Params))
		case answer.ID != b.next:
		case answer.Error != nil:
			b.t.Fatalf("%s: %s", method, answer.Error.Message)
		default:
			if result != nil {
				if err := json.Unmarshal(answer.Result, result); err != nil {
					b.t.Fatalf("%s: %v", method, err)
				}
			}
			return
		}
	}
}

// eval gives the text that an expression, possibly a promise, comes to in a page.
func (b *browser) eval(session, expression string) string {
	b.t.Helper()
	var out struct {
		Result           struct{ Value any }
		ExceptionDetails json.RawMessage
	}
	b.call(session, "Runtime.evaluate",
		map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &out)
	if out.ExceptionDetails != nil {
		return "exception " + string(out.ExceptionDetails)
	}
	return fmt.Sprint(out.Result.Value)
}

package execcmd

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/clitest"
	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/stream/exec"
)

// Where the command begins is said by --, and nothing is asked of the cluster before that is clear.
func TestUsage(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"":                       "exec needs the name of a VM, then -- and a command",
		"-- ls":                  "exec needs the name of a VM, then -- and a command",
		"web":                    "exec needs a command after --",
		"web --":                 "exec needs a command after --",
		"web ls":                 "put -- before the command: exec web -- ls",
		"web db -- ls":           "put -- before the command: exec web -- db",
		"web -o nope -- ls":      "nope",
		"web --timeout x -- ls":  "--timeout",
		"web --timeout -1 -- ls": "--timeout",
	} {
		_, _, err := clitest.Command{New: NewCmdExec}.Run(t, strings.Fields(line)...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("exec %s: %v; want %q", line, err, want)
		}
	}
}

// serve answers as a guest whose program echoes its command to stdout and its input to stderr.
func serve(t *testing.T, result exec.Result) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		conn, err := stream.Accept(w, r, stream.Options{})
		if err != nil {
			return // Accept has answered
		}
		defer conn.Close()
		_, payload, err := exec.ReadFrame(conn)
		if err != nil {
			t.Error(err)
			return
		}
		var request exec.Request
		if err := json.Unmarshal(payload, &request); err != nil {
			t.Error(err)
		}
		var input []byte
		for request.Stdin {
			_, part, err := exec.ReadFrame(conn)
			if err != nil {
				t.Error(err)
				return
			}
			input = append(input, part...)
			request.Stdin = len(part) > 0
		}
		if result.Failure == nil {
			err = exec.WriteAll(conn, exec.ChannelStdout, []byte(strings.Join(request.Command, "|")))
			if err == nil {
				err = exec.WriteAll(conn, exec.ChannelStderr, input)
			}
		}
		if err == nil {
			err = exec.WriteJSON(conn, exec.ChannelResult, result)
		}
		if err != nil {
			t.Error(err)
		}
		_, _ = io.Copy(io.Discard, conn) // the client closes
	}
}

// What a program writes arrives where it wrote it, and its exit code is virtctl's, as a shell has it.
func TestRun(t *testing.T) {
	t.Parallel()
	const dropped = "warning: the guest agent has dropped some of the output\n"
	missing := &metav1.Status{Reason: exec.ReasonNoProgram, Message: "nope", Code: http.StatusNotFound}
	for name, c := range map[string]struct {
		line, stdin string
		result      exec.Result
		out, errOut string
		code        int
	}{
		"it ends well":        {"web -- prog -x", "unread", exec.Result{}, "prog|-x", "", 0},
		"with input":          {"web -i -- cat", "typed", exec.Result{}, "cat", "typed", 0},
		"its exit code":       {"web -- prog", "", exec.Result{ExitCode: 3}, "prog", "", 3},
		"a signal":            {"web -- prog", "", exec.Result{Signal: 9}, "prog", "", 137},
		"output that is lost": {"web -- prog", "", exec.Result{Truncated: true}, "prog", dropped, 0},
		"no such program":     {"web -- nope", "", exec.Result{Failure: missing}, "", "", exitNoProgram},
		"a report": {
			"web -i -o jsonpath={.exitCode}:{.stdout}:{.stderr} -- prog", "typed",
			exec.Result{ExitCode: 3},
			"3:prog:typed", "", 3,
		},
	} {
		api := clienttest.New(t)
		api.Put("/apis/subresources.kubevirt.io/v1/namespaces/team-a/virtualmachineinstances/web/exec",
			serve(t, c.result))
		out, errOut, err := clitest.Command{
			New: NewCmdExec, Kubeconfig: api.Kubeconfig("team-a"), Stdin: c.stdin,
		}.Run(t, strings.Fields(c.line)...)
		if out != c.out || errOut != c.errOut || cli.ExitCode(err) != c.code {
			t.Errorf("%s: %q, %q, %v", name, out, errOut, err)
		}
	}
}

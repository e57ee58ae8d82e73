package usbredircmd

import (
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/clitest"
	"github.com/virtkit/virtkit/pkg/stream"
)

const port = "/apis/subresources.kubevirt.io/v1/namespaces/team-a/virtualmachineinstances/demo/usbredir"

// install makes a usbredirect, the only program in PATH but for the shell's own words; "" installs none.
func install(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	if script == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(dir, "usbredirect"), []byte("#!/bin/bash\n"+script), 0o700); err != nil {
		t.Fatal(err)
	}
}

// TestUsage has what no cluster is asked for, with usbredirect installed and without.
func TestUsage(t *testing.T) {
	install(t, "")
	for line, want := range map[string]struct {
		text string
		code int
	}{
		"1-3 demo":                   {"usbredirect is not installed", cli.ExitFailure},
		"0951:1666":                  {"needs a USB device and the name of one VM, got 1 of 2", cli.ExitUsage},
		"951:1666 demo":              {`"951:1666" is not a USB device`, cli.ExitUsage},
		"1-3;id demo":                {`"1-3;id" is not a USB device`, cli.ExitUsage},
		"1-3 demo -o json":           {"-o needs --no-launch", cli.ExitUsage},
		"--no-launch 1-3 demo":       {"takes the name of one VM, got 2", cli.ExitUsage},
		"--no-launch demo -o colour": {`unknown output format "colour"`, cli.ExitUsage},
	} {
		out, _, err := clitest.Command{New: NewCmdUSBRedir}.Run(t, strings.Fields(line)...)
		if err == nil || !strings.Contains(err.Error(), want.text) || cli.ExitCode(err) != want.code || out != "" {
			t.Errorf("usbredir %s: %v, exit code %d", line, err, cli.ExitCode(err))
		}
	}
}

// The program gets the device and the port, and what it says goes to the guest and back, until it ends.
func TestLaunch(t *testing.T) {
	install(t, `[ "$*" = "--device 0951:1666 --to 127.0.0.1:${4##*:}" ] || exit 4
exec 3<>"/dev/tcp/127.0.0.1/${4##*:}"
echo hello >&3
read -r answer <&3
[ "$answer" = welcome ] || exit 5
`)
	heard := make(chan string, 1)
	api := clienttest.New(t)
	api.Put(port, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := stream.Accept(w, r, stream.Options{})
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		text := make([]byte, len("hello\n"))
		if _, err := io.ReadFull(conn, text); err != nil {
			t.Error(err)
		}
		heard <- string(text)
		if _, err := conn.Write([]byte("welcome\n")); err != nil {
			t.Error(err)
		}
		_, _ = io.Copy(io.Discard, conn) // until it ends
	}))
	out, errOut, err := clitest.Command{
		New: NewCmdUSBRedir, Kubeconfig: api.Kubeconfig("team-a"), ErrIsTTY: true,
	}.Run(t, "0951:1666", "demo")
	if err != nil || out != "" || errOut != "0951:1666 is in demo until you press Ctrl-C.\n" {
		t.Errorf("%v, stdout %q, stderr %q", err, out, errOut)
	}
	if got := <-heard; got != "hello\n" {
		t.Errorf("the guest gets %q", got)
	}
}

// A program that fails before it connects ends the command with what it wrote.
func TestLaunchFails(t *testing.T) {
	install(t, "echo 'could not open device' >&2; exit 3")
	api := clienttest.New(t)
	api.Put(port, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := stream.Accept(w, r, stream.Options{})
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.Copy(io.Discard, conn) // until it ends
	}))
	_, _, err := clitest.Command{New: NewCmdUSBRedir, Kubeconfig: api.Kubeconfig("team-a")}.Run(t, "1-3", "demo")
	if err == nil || err.Error() != "usbredirect: exit status 3: could not open device" {
		t.Errorf("%v", err)
	}
}

// TestRefused has what the server's answers become: whose USB it is, and what helps.
func TestRefused(t *testing.T) {
	resource := schema.GroupResource{Resource: "virtualmachineinstances"}
	absent := apierrors.NewNotFound(resource, "demo")
	full := apierrors.NewConflict(resource, "demo", errors.New("four devices are there"))
	for name, test := range map[string]struct {
		answer error
		vm     bool
		want   string
		code   int
	}{
		"no such VM": {absent, false, `"demo" not found`, cli.ExitNotFound},
		"stopped":    {absent, true, "it is stopped; start it with `virtctl start demo`", cli.ExitFailure},
		"no right":   {apierrors.NewForbidden(resource, "demo", nil), true, "USB of team-a/demo: ", cli.ExitNotAllowed},
		"full":       {full, true, "four devices are there", cli.ExitFailure},
	} {
		api := clienttest.New(t)
		api.Put(port, test.answer)
		if test.vm {
			api.Put("/apis/kubevirt.io/v1/namespaces/team-a/virtualmachines/demo", &v1.VirtualMachine{
				ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "demo"},
				Spec:       v1.VirtualMachineSpec{RunStrategy: new(v1.RunStrategyHalted)},
			})
		}
		out, _, err := clitest.Command{New: NewCmdUSBRedir, Kubeconfig: api.Kubeconfig("team-a")}.Run(t, "--no-launch",
			"demo")
		if err == nil || !strings.Contains(err.Error(), test.want) || cli.ExitCode(err) != test.code || out != "" {
			t.Errorf("%s: stdout %q, %v, exit code %d", name, out, err, cli.ExitCode(err))
		}
	}
}

// A guest that does not run yet is said to be, with the command that starts it.
func TestExplain(t *testing.T) {
	f := cli.NewFactory("virtctl", cli.NoStreams(), func(string) string { return "" })
	o, target := &Options{Factory: f}, cli.Target{Namespace: "team-a", Name: "demo"}
	early := &apierrors.StatusError{ErrStatus: metav1.Status{
		Code: http.StatusConflict, Reason: metav1.StatusReasonConflict, Message: "VMI is not running",
	}}
	for _, test := range []struct {
		err  error
		hint bool
	}{{early, true}, {errors.New("broken"), false}} {
		got := o.explain(target, test.err)
		if !errors.Is(got, test.err) || !strings.HasPrefix(got.Error(), "USB of team-a/demo: ") ||
			strings.Contains(got.Error(), "`virtctl start demo -n team-a` starts it") != test.hint {
			t.Errorf("%v becomes %v", test.err, got)
		}
	}
	if err := o.explain(target, nil); err != nil {
		t.Errorf("no error becomes %v", err)
	}
}

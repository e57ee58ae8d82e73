package cli

import (
	"bytes"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/virtkit/virtkit/pkg/client/action/outage"
)

// An outage has one line at its beginning and one at its end, above what a terminal shows of the wait.
func TestReportOutages(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "none") // whose server is not named
	if err := os.WriteFile(kubeconfig, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for terminal, want := range map[bool]string{
		false: "warning: the API server does not answer: connection refused; goes on when it answers\n" +
			"note: there is an answer again, after 2s\n",
		true: "\rwaiting … 1s\r            \r" +
			"warning: the API server does not answer: connection refused; goes on when it answers\n" +
			"\rwaiting … 2s\rwaiting … 3s\r            \r" +
			"note: there is an answer again, after 2s\n",
	} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			f := NewFactory("virtctl", &IOStreams{ErrOut: &out, ErrIsTTY: terminal}, func(string) string { return "" })
			f.Flags.Kubeconfig = kubeconfig
			ctx := f.ReportOutages(t.Context())
			link := outage.Follow(ctx)
			if err := f.IO.While("waiting", func() error {
				time.Sleep(1500 * time.Millisecond)
				link.Lost(ctx, &url.Error{Op: "Get", Err: syscall.ECONNREFUSED})
				link.Lost(ctx, errors.New("again"))
				time.Sleep(2 * time.Second)
				link.Answered()
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if out.String() != want {
				t.Errorf("terminal %t: said %q, want %q", terminal, out.String(), want)
			}
		})
	}
}

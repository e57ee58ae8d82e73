package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

func TestWaitingFlags(t *testing.T) {
	var w Waiting
	cmd := &cobra.Command{Use: "x"}
	w.AddFlags(cmd, "it is there", 5*time.Minute)
	if got := cmd.Flags().Lookup("timeout").DefValue; got != "5m0s" {
		t.Errorf("the default is %s", got)
	}
	if err := cmd.ParseFlags([]string{"--wait", "--timeout", "90"}); err != nil {
		t.Fatal(err)
	}
	if !w.Wait || w.Timeout.Duration != 90*time.Second {
		t.Errorf("%+v", w)
	}
	if err := w.CheckWait(DryRunNone); err != nil {
		t.Error(err)
	}
	for _, d := range []DryRun{DryRunClient, DryRunServer} {
		if err := w.CheckWait(d); err == nil || ExitCode(err) != ExitUsage {
			t.Errorf("%s: %v", d, err)
		}
	}
}

func TestTimeoutLimits(t *testing.T) {
	for limit, limited := range map[time.Duration]bool{time.Hour: true, 0: false, -time.Second: false} {
		ctx, cancel := (&Timeout{Duration: limit}).Limit(t.Context())
		if _, has := ctx.Deadline(); has != limited || ctx.Err() != nil {
			t.Errorf("%s: limited %v, %v", limit, has, ctx.Err())
		}
		cancel()
		if ctx.Err() == nil {
			t.Errorf("%s: it cannot be cancelled", limit)
		}
	}
}

func TestStagesEndsInTime(t *testing.T) {
	w := Waiting{Timeout: Timeout{Duration: time.Millisecond}}
	var errOut bytes.Buffer
	err := w.Stages(t.Context(), &IOStreams{ErrOut: &errOut}, "clone x",
		func(ctx context.Context, report func(string)) error {
			report("Pending")
			<-ctx.Done()
			return ctx.Err()
		})
	if !errors.Is(err, context.DeadlineExceeded) || errOut.Len() > 0 {
		t.Errorf("%v, %q", err, errOut.String())
	}
}

// What goes on is told to who has interrupted, and to nobody else.
func TestCreated(t *testing.T) {
	w := Waiting{}
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"interrupted": {
			fmt.Errorf("watch: %w", context.Canceled),
			"interrupted: clone c1 was created, and goes on; `kubectl virt why clone/c1 -n ns` says how far it is\n" +
				"interrupted: clone ns/c2 may have been created\n",
		},
		"too slow": {context.DeadlineExceeded, ""},
		"no error": {nil, ""},
	} {
		var errOut bytes.Buffer
		f := NewFactory("kubectl virt", &IOStreams{ErrOut: &errOut}, func(string) string { return "" })
		w.Created(f, test.err, "clone", "ns", "c1")
		w.MayBeCreated(f, test.err, "clone", "ns", "c2")
		if errOut.String() != test.want {
			t.Errorf("%s: said %q, want %q", name, errOut.String(), test.want)
		}
	}
}

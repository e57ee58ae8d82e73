package cli

import (
	"bytes"
	"context"
	"errors"
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

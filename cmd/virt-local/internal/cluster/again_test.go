package cluster

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestAgain(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	for name, test := range map[string]struct {
		ctx  context.Context
		ran  time.Duration
		want int
	}{
		"a hook of a slow API server timed out": {t.Context(), time.Minute, 1},
		"its port is taken":                     {t.Context(), time.Second, 0},
		"down":                                  {ended, time.Minute, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			began, started := time.Now(), 0
			a := &again{
				began: began, now: func() time.Time { return began.Add(test.ran) }, out: &out,
				exec: func() error { started++; return nil },
			}
			a.start(test.ctx, errors.New("why"))
			if started != test.want || strings.Contains(out.String(), "why") != (test.want > 0) {
				t.Errorf("started %d times, want %d; said %q", started, test.want, &out)
			}
		})
	}
}

package launcher

import (
	"strings"
	"testing"
	"time"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

func TestJudge(t *testing.T) {
	const giB = 1 << 30
	all := limits{perGiB: 10 * time.Second, progress: 5 * time.Second, postCopy: true, disruption: true}
	moving := pace{processed: 1, remaining: giB, total: giB}
	for name, tc := range map[string]struct {
		limits  limits
		pace    pace
		mode    pb.MigrationMode
		elapsed time.Duration
		account hypervisor.Progress
		want    verdict
		why     string
	}{
		"in time": {
			limits: all, pace: moving, elapsed: 9 * time.Second,
			account: hypervisor.Progress{DataTotal: giB, DataProcessed: 2},
		},
		"a part of a GiB": {
			limits: all, pace: pace{}, elapsed: 9 * time.Second,
			account: hypervisor.Progress{DataTotal: 1, DataProcessed: 2},
		},
		"more than a GiB": {
			limits: all, pace: pace{}, elapsed: 19 * time.Second,
			account: hypervisor.Progress{DataTotal: giB + 1, DataProcessed: 2},
		},
		"over": {
			limits: all, pace: moving, elapsed: 11 * time.Second,
			account: hypervisor.Progress{DataTotal: giB, DataProcessed: 2}, want: switchToPostCopy,
		},
		"post-copy forbidden": {
			limits: limits{perGiB: time.Second, disruption: true}, pace: moving, elapsed: 2 * time.Second,
			account: hypervisor.Progress{DataProcessed: 2}, want: standStill,
		},
		"disruption forbidden": {
			limits: limits{perGiB: time.Second, postCopy: true}, pace: moving, elapsed: 2 * time.Second,
			account: hypervisor.Progress{DataProcessed: 2}, want: giveUp,
			why: "it is not complete after 2s (completionTimeoutPerGiB)",
		},
		"no limit":          {pace: moving, elapsed: time.Hour, account: hypervisor.Progress{}},
		"nothing known yet": {limits: limits{perGiB: time.Second}, elapsed: time.Hour},
		"standing still": {
			limits: all, pace: moving, mode: stopped, elapsed: 19 * time.Second,
			account: hypervisor.Progress{DataProcessed: 2},
		},
		"standing too long": {
			limits: all, pace: moving, mode: stopped, elapsed: 21 * time.Second,
			account: hypervisor.Progress{DataProcessed: 2}, want: giveUp,
			why: "it is not complete after 21s (completionTimeoutPerGiB)",
		},
		"stuck": {
			limits: all, pace: moving, elapsed: 6 * time.Second,
			account: hypervisor.Progress{DataProcessed: 1, DataRemaining: giB}, want: giveUp,
			why: "nothing was copied for 6s (progressTimeout)",
		},
		"memory gets dirty": {
			limits: all, pace: moving, elapsed: 6 * time.Second,
			account: hypervisor.Progress{DataProcessed: 1, DataRemaining: giB + 1},
		},
		"post-copy": {
			limits: all, pace: moving, mode: postCopy, elapsed: time.Hour,
			account: hypervisor.Progress{DataProcessed: 2, DataRemaining: giB},
		},
		"post-copy, stuck": {
			limits: all, pace: moving, mode: postCopy, elapsed: 6 * time.Second,
			account: hypervisor.Progress{DataProcessed: 1, DataRemaining: giB}, want: giveUp,
			why: "nothing was copied for 6s (progressTimeout)",
		},
		"no overflow": {
			limits: limits{perGiB: longest}, pace: pace{total: 1 << 63}, elapsed: time.Hour,
			account: hypervisor.Progress{DataProcessed: 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.pace.mode = tc.mode
			got, why := tc.pace.judge(tc.limits, tc.elapsed, tc.account)
			if got != tc.want || why != tc.why {
				t.Errorf("got %v %q, want %v %q", got, why, tc.want, tc.why)
			}
		})
	}
	p := moving
	p.judge(all, 3*time.Second, hypervisor.Progress{DataProcessed: 2, DataRemaining: giB})
	if got, _ := p.judge(all, 7*time.Second, hypervisor.Progress{DataProcessed: 2, DataRemaining: giB}); got != letGo {
		t.Errorf("4 s after it moved: %v", got)
	}
	if got, why := p.judge(all, 9*time.Second,
		hypervisor.Progress{DataProcessed: 2, DataRemaining: giB}); got != giveUp || !strings.Contains(why, "6s") {
		t.Errorf("6 s after it moved: %v %q", got, why)
	}
}

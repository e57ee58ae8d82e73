package migrate

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/report/progress"
)

func TestSummary(t *testing.T) {
	for name, tc := range map[string]struct {
		p    progress.Progress
		want string
	}{
		"beginning": {
			progress.Progress{Mode: "PreCopy", TotalBytes: 1 << 30, RemainingBytes: 1 << 30}, "0 %, 1.0 GiB left",
		},
		"running": {
			progress.Progress{
				Mode: "PreCopy", TotalBytes: 1 << 30, RemainingBytes: 256 << 20, BandwidthBytesPerSecond: 120 << 20,
				DirtyBytesPerSecond: 20 << 20, Iteration: 2,
			},
			"75 %, 256 MiB left at 120 MiB/s, changes 20.0 MiB/s, about 3s",
		},
		"throttled": {
			progress.Progress{
				Mode: "PreCopy", TotalBytes: 100 << 20, RemainingBytes: 20 << 20, BandwidthBytesPerSecond: 30 << 20,
				DirtyBytesPerSecond: 40 << 20, ThrottlePercent: 30, Iteration: 9,
			},
			"80 %, 20.0 MiB left at 30.0 MiB/s, changes 40.0 MiB/s, slowed down by 30 %, no end in sight",
		},
		"post-copy": {
			progress.Progress{
				Mode: "PostCopy", TotalBytes: 100 << 20, RemainingBytes: 30 << 20, BandwidthBytesPerSecond: 10 << 20,
			},
			"70 %, 30.0 MiB left at 10.0 MiB/s, post-copy, about 3s",
		},
		"paused": {
			progress.Progress{
				Mode: "Paused", TotalBytes: 100 << 20, RemainingBytes: 512, BandwidthBytesPerSecond: 10 << 20,
			},
			"99 %, 512 B left at 10.0 MiB/s, stands still, about 1s",
		},
		"done": {
			progress.Progress{
				Mode: "PreCopy", Done: true, ProcessedBytes: 150 << 20, ElapsedSeconds: 2.34, DowntimeMilliseconds: 210,
			},
			"copying 150 MiB took 2.3s, stood still for 210 ms",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Summary(&tc.p); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
	for text, known := range map[string]bool{"": false, "{": false, `{"mode":"PreCopy"}`: true} {
		m := &v1.VirtualMachineInstanceMigration{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{names.AnnotationProgress: text}},
		}
		if (Progress(m) != nil) != known {
			t.Errorf("%q: %v", text, Progress(m))
		}
	}
}

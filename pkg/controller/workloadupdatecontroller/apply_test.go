package workloadupdatecontroller

import (
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/service/frame"
	"github.com/virtkit/virtkit/pkg/service/frame/frametest"
)

// TestApply: what a step writes, in order. Nothing of it waits for another: a refusal leaves the rest.
func TestApply(t *testing.T) {
	marked, unmarks := guest("old", time.Hour, unmarked), guest("new", time.Hour)
	moves, ends, over := guest("moves", time.Hour), guest("ends", time.Hour), guest("over", time.Hour)
	all := []string{
		"patch VirtualMachineInstance old", "patch VirtualMachineInstance new", "patch status of KubeVirt kubevirt",
		"create VirtualMachineInstanceMigration m", "create eviction of Pod p",
	}
	for name, tc := range map[string]struct {
		refuse int
		answer error
		fails  bool
	}{
		"all is done":          {refuse: -1},
		"a label is refused":   {refuse: 0, answer: errors.New("no"), fails: true},
		"the count is refused": {refuse: 2, answer: errors.New("no"), fails: true},
		"a migration is":       {refuse: 3, answer: errors.New("no"), fails: true},
		"a budget forbids it":  {refuse: 4, answer: apierrors.NewTooManyRequests("budget", 1)},
		"an eviction is":       {refuse: 4, answer: errors.New("no"), fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			server := frametest.New(t, []func(*runtime.Scheme) error{v1.AddToScheme})
			server.Refuse(tc.refuse, tc.answer)
			r := &Reconciler{
				Client: server, Recorder: record.NewFakeRecorder(9), writes: frame.NewWrites(server),
				Now: func() time.Time { return now },
			}
			r.tried = map[types.UID]time.Time{"long ago": now.Add(-2 * time.Hour), "lately": now.Add(-time.Minute)}
			view := View{
				KubeVirt:  &v1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Namespace: "kubevirt", Name: "kubevirt"}},
				Now:       now,
				GuestPods: map[types.UID]*corev1.Pod{"ends": {ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p"}}},
			}
			step := Step{
				Mark: []*v1.VirtualMachineInstance{marked}, Unmark: []*v1.VirtualMachineInstance{unmarks}, Outdated: 3,
				Migrate: []Move{{VMI: moves, Name: "m"}}, Evict: []*v1.VirtualMachineInstance{ends, over},
			}
			if err := r.apply(t.Context(), view, &step); (err != nil) != tc.fails {
				t.Errorf("error %v", err)
			}
			if !slices.Equal(server.Writes, all) {
				t.Errorf("writes %q, want %q", server.Writes, all)
			}
			if !r.looked.Equal(now) || !r.lastBatch.Equal(now) || len(r.tried) != 3 || r.tried["over"] != now {
				t.Errorf("looked %s, last batch %s, tried %v", r.looked, r.lastBatch, r.tried)
			}
		})
	}
}

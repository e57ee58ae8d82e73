//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"io"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

// targetLog is what the launcher of a migration's target writes. Its pod is deleted when the migration has failed, and
// with it what its QEMU said, such as tcgAssertion.
type targetLog struct {
	mu   sync.Mutex
	text bytes.Buffer
	said bool
}

// Write keeps the last of it.
func (l *targetLog) Write(b []byte) (int, error) {
	const most = 256 << 10
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.text.Len() > most {
		l.text.Reset()
	}
	return l.text.Write(b)
}

// say prints the last lines, once.
func (l *targetLog) say(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.said {
		return
	}
	l.said = true
	const most = 4 << 10
	text := l.text.Bytes()
	t.Logf("the target's log: %s", text[max(0, len(text)-most):])
}

// followTarget reads the log of a migration's target from its start, until stop is called.
func (g *guest) followTarget(t *testing.T, m *v1.VirtualMachineInstanceMigration) (log *targetLog, stop func()) {
	t.Helper()
	log = &targetLog{}
	var reading sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	reading.Go(func() {
		for ctx.Err() == nil && !g.readTarget(ctx, m, log) {
			select {
			case <-ctx.Done():
			case <-time.After(300 * time.Millisecond):
			}
		}
	})
	return log, func() { cancel(); reading.Wait() }
}

// readTarget reads the log of a migration's target to its end; false when there is none to read yet.
func (g *guest) readTarget(ctx context.Context, m *v1.VirtualMachineInstanceMigration, log io.Writer) bool {
	pods, err := g.Kube.CoreV1().Pods(g.ns).List(ctx,
		metav1.ListOptions{LabelSelector: v1.MigrationJobLabel + "=" + string(m.UID)})
	if err != nil || len(pods.Items) == 0 || pods.Items[0].Status.Phase == corev1.PodPending {
		return false
	}
	stream, err := g.Kube.CoreV1().Pods(g.ns).GetLogs(pods.Items[0].Name,
		&corev1.PodLogOptions{Container: names.ContainerCompute, Follow: true}).Stream(ctx)
	if err != nil {
		return false // it is starting, or gone
	}
	defer stream.Close()
	_, _ = io.Copy(log, stream) // what there is of it is printed
	return true
}

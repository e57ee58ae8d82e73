package handler

import (
	"context"
	"errors"
	"net"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/handler/podfs"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
)

func (l *fakeLauncher) Migrate(_ context.Context, r *launcherpb.MigrateRequest) (*launcherpb.MigrateResponse, error) {
	l.set(func(s *launcherpb.GuestState) {
		s.Migration = &launcherpb.Migration{Uid: r.Uid, Phase: launcherpb.MigrationPhase_MIGRATION_PHASE_RUNNING}
	})
	return &launcherpb.MigrateResponse{}, nil
}

// The connections of a migration are cut when its launcher asks for it, and that it is over only it says.
func TestMigrationIsCut(t *testing.T) {
	vmi := migratingVMI(nodeName, newPod().Name, "node2", "other")
	vmi.Status.MigrationState.TargetDirectMigrationNodePorts = map[string]int{"8187": 0}
	w := newWorld(t, vmi, newPod(), otherPod(corev1.PodRunning, ""))
	refuse := errors.New("no way there")
	w.node.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, refuse }
	w.startLauncher()
	w.launcher.lifecycle(launcherpb.Lifecycle_LIFECYCLE_RUNNING, "booted")
	w.startHandler()
	run, err := podfs.OpenRun(w.node.PodsDir, podUID)
	w.must(err)
	defer run.Close()
	taken := func() bool {
		conn, err := run.Dial(t.Context(), names.SocketMigrationMemory)
		return err == nil && conn.Close() == nil
	}
	w.eventually("it is under way", func() bool {
		w.launcher.mu.Lock()
		defer w.launcher.mu.Unlock()
		return w.launcher.state.Migration != nil
	})
	w.eventually("its connections are taken", taken)
	w.launcher.set(func(s *launcherpb.GuestState) { s.Migration.Cut = true })
	w.eventually("its connections are refused", func() bool { return !taken() })
	if ms := w.vmi().Status.MigrationState; ms.Completed || ms.Failed {
		t.Errorf("the launcher has not said that it is over: %+v", ms)
	}
	w.launcher.set(func(s *launcherpb.GuestState) {
		s.Migration.Phase, s.Migration.Error = launcherpb.MigrationPhase_MIGRATION_PHASE_FAILED, "QEMU did not answer"
	})
	w.eventually("it has failed", func() bool { return w.vmi().Status.MigrationState.Failed })
}

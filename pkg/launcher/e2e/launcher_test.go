//go:build e2e

package e2e

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "kubevirt.io/api/core/v1"

	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

func TestBootToLoginAndShutDown(t *testing.T) {
	p := newPod(t, tinyVMI("demo"))
	states := p.watch()
	p.waitState(states, 5*time.Second, "no guest yet", func(s *pb.GuestState) bool {
		return s.Lifecycle == pb.Lifecycle_LIFECYCLE_NONE
	})
	state := p.mustStart()
	if state.Lifecycle != pb.Lifecycle_LIFECYCLE_RUNNING || !state.Emulation ||
		!strings.HasPrefix(state.Machine, "pc-q35-") {
		t.Errorf("state after Start: %v", state)
	}
	if state.MemoryAtBoot != 128<<20 || state.VolumeTargets["disk0"] != "vda" ||
		state.VolumeTargets["cloudinit"] != "vdb" {
		t.Errorf("state after Start: %v", state)
	}
	p.waitConsole("seeded login:", 10*time.Second)
	s := p.waitState(states, 60*time.Second, "the guest agent's report", func(s *pb.GuestState) bool {
		return s.AgentConnected && strings.Contains(string(s.InterfacesJson), "10.0.2.2")
	})
	t.Logf("agent %s, os %s, interfaces %s", s.AgentVersion, s.GuestOsJson, s.InterfacesJson)
	p.logMemory()

	// Start again changes nothing.
	if r, err := p.start(); err != nil || r.State.Lifecycle != pb.Lifecycle_LIFECYCLE_RUNNING {
		t.Errorf("second Start: %v, %v", r, err)
	}

	began := time.Now()
	p.shutdown(60 * time.Second)
	p.waitState(states, 5*time.Second, "shutting down", func(s *pb.GuestState) bool {
		return s.Lifecycle == pb.Lifecycle_LIFECYCLE_SHUTTING_DOWN
	})
	p.waitState(states, 60*time.Second, "shut off", func(s *pb.GuestState) bool {
		return s.Lifecycle == pb.Lifecycle_LIFECYCLE_SHUTOFF
	})
	code, message := p.waitExit(5 * time.Second)
	t.Logf("shut down in %v", time.Since(began))
	if code != 0 || message != `{"lifecycle":"LIFECYCLE_SHUTOFF","reason":"shutdown"}` {
		t.Errorf("exit code %d, message %s", code, message)
	}
}

// The longest name that an object may have: every file that libvirt and swtpm call after the guest can be made.
func TestLongestName(t *testing.T) {
	vmi := tinyVMI(strings.Repeat("a", 253))
	vmi.Spec.Domain.Devices.TPM = &v1.TPMDevice{}
	p := newPod(t, vmi)
	if r, err := p.start(); err != nil || r.State.Lifecycle != pb.Lifecycle_LIFECYCLE_RUNNING {
		t.Fatalf("%v, %v", r, err)
	}
	p.shutdown(0)
	p.waitExit(10 * time.Second)
}

func TestQEMUKilledIsACrash(t *testing.T) {
	p := newPod(t, tinyVMI("crash"))
	states := p.watch()
	p.mustStart()
	p.kill(p.process("qemu"), syscall.SIGKILL)
	p.waitState(states, 10*time.Second, "crashed", func(s *pb.GuestState) bool {
		return s.Lifecycle == pb.Lifecycle_LIFECYCLE_CRASHED
	})
	code, message := p.waitExit(5 * time.Second)
	if code != 1 || !strings.Contains(message, "CRASHED") {
		t.Errorf("exit code %d, message %s", code, message)
	}
}

func TestLibvirtdKilledGuestRunsOn(t *testing.T) {
	p := newPod(t, tinyVMI("daemon"), "--grace-period=60s")
	states := p.watch()
	p.mustStart()
	qemu, old := p.process("qemu"), p.process("libvirtd")
	p.kill(old, syscall.SIGKILL)
	p.eventually(20*time.Second, "a new libvirtd", func() bool {
		pid := p.process("libvirtd")
		return pid != 0 && pid != old
	})
	// The new one steers the same guest.
	p.eventually(20*time.Second, "pausing through the new libvirtd", func() bool {
		_, err := p.client.Pause(t.Context(), &pb.PauseRequest{})
		return err == nil
	})
	p.waitState(states, 5*time.Second, "paused", func(s *pb.GuestState) bool {
		return s.Lifecycle == pb.Lifecycle_LIFECYCLE_PAUSED
	})
	if _, err := p.client.Unpause(t.Context(), &pb.UnpauseRequest{}); err != nil {
		t.Error(err)
	}
	p.waitState(states, 5*time.Second, "running", func(s *pb.GuestState) bool {
		return s.Lifecycle == pb.Lifecycle_LIFECYCLE_RUNNING
	})
	if now := p.process("qemu"); now != qemu {
		t.Errorf("QEMU was %d and is %d", qemu, now)
	}
	// And hears of its end. SIGTERM is an orderly shutdown.
	p.kill(p.pid, syscall.SIGTERM)
	p.waitState(states, 60*time.Second, "shut off", func(s *pb.GuestState) bool {
		return s.Lifecycle == pb.Lifecycle_LIFECYCLE_SHUTOFF
	})
	if code, message := p.waitExit(5 * time.Second); code != 0 {
		t.Errorf("exit code %d, message %s", code, message)
	}
}

func TestQEMUDiesWhileLibvirtdIsDead(t *testing.T) {
	p := newPod(t, tinyVMI("both"))
	states := p.watch()
	p.mustStart()
	qemu := p.process("qemu")
	p.kill(p.process("libvirtd"), syscall.SIGKILL)
	p.kill(qemu, syscall.SIGKILL)
	p.waitState(states, 20*time.Second, "crashed", func(s *pb.GuestState) bool {
		return s.Lifecycle == pb.Lifecycle_LIFECYCLE_CRASHED
	})
	if code, message := p.waitExit(5 * time.Second); code != 1 {
		t.Errorf("exit code %d, message %s", code, message)
	}
}

func TestGraceOverPowersOff(t *testing.T) {
	p := newPod(t, tinyVMI("deaf"))
	states := p.watch()
	if _, err := p.start(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	p.shutdown(0)
	p.waitState(states, 10*time.Second, "destroyed", func(s *pb.GuestState) bool {
		return s.Lifecycle == pb.Lifecycle_LIFECYCLE_DESTROYED
	})
	code, _ := p.waitExit(5 * time.Second)
	t.Logf("powered off and gone in %v", time.Since(began))
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestShutdownDuringBoot(t *testing.T) {
	skipInShort(t)
	p := newPod(t, tinyVMI("early"))
	states := p.watch()
	if _, err := p.start(); err != nil {
		t.Fatal(err)
	}
	// The guest's firmware runs, and does not notice the first press of the button.
	p.shutdown(3 * time.Minute)
	p.waitState(states, 3*time.Minute, "shut off", func(s *pb.GuestState) bool {
		return s.Lifecycle == pb.Lifecycle_LIFECYCLE_SHUTOFF
	})
	if code, _ := p.waitExit(5 * time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestRebootAndResetKeepThePod(t *testing.T) {
	skipInShort(t)
	p := newPod(t, tinyVMI("reboot"))
	p.mustStart()
	for i, again := range []func() error{
		func() error { _, err := p.client.Reset(t.Context(), &pb.ResetRequest{}); return err },
		func() error { _, err := p.client.SoftReboot(t.Context(), &pb.SoftRebootRequest{}); return err },
	} {
		if err := again(); err != nil {
			t.Fatal(err)
		}
		p.eventually(90*time.Second, "another login prompt", func() bool {
			return strings.Count(p.console(), "login:") >= i+2
		})
	}
	p.shutdown(0)
	p.waitExit(10 * time.Second)
}

func TestSIGTERMBeforeStart(t *testing.T) {
	p := newPod(t, tinyVMI("unused"))
	began := time.Now()
	p.kill(p.pid, syscall.SIGTERM)
	code, _ := p.waitExit(3 * time.Second)
	t.Logf("gone in %v", time.Since(began))
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestStartRefusesAnotherVMI(t *testing.T) {
	p := newPod(t, tinyVMI("mine"))
	p.vmi.Name = "yours"
	_, err := p.start()
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("%v", err)
	}
}

package podfs

import (
	"errors"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// vcpu is a thread that is called like a vCPU's; it ends when the test does.
func vcpu(t *testing.T, name string) (tid int) {
	t.Helper()
	started, end := make(chan int), make(chan struct{})
	t.Cleanup(func() { close(end) })
	go func() {
		runtime.LockOSThread() // and the thread ends with the goroutine
		text := append([]byte(name), 0)
		if _, _, errno := unix.Syscall(unix.SYS_PRCTL, unix.PR_SET_NAME,
			uintptr(unsafe.Pointer(&text[0])), 0); errno != 0 {
			started <- 0
			return
		}
		started <- unix.Gettid()
		<-end
	}()
	if tid = <-started; tid == 0 {
		t.Fatal("a thread cannot be named")
	}
	return tid
}

func TestRealtimeThreads(t *testing.T) {
	first, second, other := vcpu(t, "CPU 0/KVM"), vcpu(t, "CPU 1/TCG"), vcpu(t, "CPU 1/nothing")
	vcpu(t, "CPU 7/KVM")
	found := make([]bool, 3)
	for range 2 {
		err := realtimeThreads("/proc/self/task", []bool{false, true, true}, found)
		if errors.Is(err, unix.EPERM) {
			t.Skip("no thread may have real-time priority here")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(found, []bool{false, true, false}) {
		t.Errorf("found %v", found)
	}
	for tid, want := range map[int]uint32{first: unix.SCHED_NORMAL, second: unix.SCHED_FIFO, other: unix.SCHED_NORMAL} {
		attr, err := unix.SchedGetAttr(tid, 0)
		if err != nil || attr.Policy != want {
			t.Errorf("thread %d has policy %d, %v, want %d", tid, attr.Policy, err, want)
		}
	}
	if err := realtimeThreads("/proc/0/task", nil, nil); err != nil {
		t.Errorf("a process that has ended: %v", err)
	}
}

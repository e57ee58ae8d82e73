package uploader

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Limits of the program that reads an untrusted image.
const (
	addressSpace = 2 << 30
	processorSec = 2 * 60 * 60
	openFiles    = 64
)

// forbidden are system calls that a conversion does not need: those of networks, of other processes, of mounts and
// namespaces, and those by which the kernel is mostly attacked.
var forbidden = []uint32{
	unix.SYS_SOCKET, unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_LISTEN, unix.SYS_ACCEPT4,
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PIDFD_GETFD, unix.SYS_KCMP,
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT,
	unix.SYS_FSOPEN, unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_OPEN_BY_HANDLE_AT,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_IO_URING_SETUP, unix.SYS_KEYCTL,
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
}

// architectures are the kernel's numbers of them, linux/audit.h.
var architectures = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// Confine becomes a program, by its path and arguments, that has no network and limits of processor time, address space
// and open files. It returns only when it cannot.
func Confine(program []string) error {
	if len(program) == 0 {
		return errors.New("no program is named")
	}
	runtime.LockOSThread()
	for _, limit := range []struct {
		what int
		most uint64
	}{
		{unix.RLIMIT_CPU, processorSec}, {unix.RLIMIT_NOFILE, openFiles}, {unix.RLIMIT_CORE, 0},
	} {
		if err := lower(limit.what, limit.most); err != nil {
			return err
		}
	}
	if err := filter(); err != nil {
		return err
	}
	// Last: a Go program has reserved more.
	if err := lower(unix.RLIMIT_AS, addressSpace); err != nil {
		return err
	}
	return fmt.Errorf("run %s: %w", program[0], syscall.Exec(program[0], program, syscall.Environ()))
}

// lower sets a limit, unless it is lower already.
func lower(what int, most uint64) error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(what, &limit); err != nil {
		return fmt.Errorf("read a limit: %w", err)
	}
	limit.Max = min(limit.Max, most)
	limit.Cur = limit.Max
	if err := unix.Setrlimit(what, &limit); err != nil {
		return fmt.Errorf("set a limit: %w", err)
	}
	return nil
}

// filter forbids system calls to this thread and the program that it becomes.
func filter() error {
	arch, ok := architectures[runtime.GOARCH]
	if !ok {
		return fmt.Errorf("images cannot be converted on %s", runtime.GOARCH)
	}
	const (
		load    = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal   = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		atLeast = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		answer  = unix.BPF_RET | unix.BPF_K
		// where struct seccomp_data has the number of the call, and the architecture
		number, architecture = 0, 4
		x32                  = 0x40000000
	)
	// From linux/seccomp.h.
	const kill, errno, allow = 0x80000000, 0x00050000, 0x7fff0000
	program := []unix.SockFilter{
		{Code: load, K: architecture},
		{Code: equal, Jt: 1, K: arch},
		{Code: answer, K: kill},
		{Code: load, K: number},
		{Code: atLeast, Jf: 1, K: x32},
		{Code: answer, K: kill},
	}
	for _, call := range forbidden {
		program = append(program,
			unix.SockFilter{Code: equal, Jf: 1, K: call},
			unix.SockFilter{Code: answer, K: errno | uint32(unix.EPERM)})
	}
	program = append(program, unix.SockFilter{Code: answer, K: allow})
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("give up new privileges: %w", err)
	}
	fprog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	const modeFilter = 2
	if err := unix.Prctl(unix.PR_SET_SECCOMP, modeFilter, uintptr(unsafe.Pointer(&fprog)), 0, 0); err != nil {
		return fmt.Errorf("forbid system calls: %w", err)
	}
	runtime.KeepAlive(program)
	return nil
}

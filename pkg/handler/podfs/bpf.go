package podfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// On the unified hierarchy no file says which devices a container may use but a BPF program, which the runtime has
// attached to the container's control group. It cannot be extended, so it is replaced by one that allows what
// every container may use, what the kubelet has granted to this one, and what virt-handler has given to it; see Rights.

// deviceRule allows devices of a kind; a negative number stands for all.
type deviceRule struct {
	kind         uint16 // BPF_DEVCG_DEV_BLOCK or _CHAR
	major, minor int64
	access       uint16 // mknod 1, read 2, write 4
}

// defaultRules is what container runtimes allow every container.
func defaultRules() []deviceRule {
	rules := []deviceRule{
		{unix.BPF_DEVCG_DEV_CHAR, -1, -1, unix.BPF_DEVCG_ACC_MKNOD},
		{unix.BPF_DEVCG_DEV_BLOCK, -1, -1, unix.BPF_DEVCG_ACC_MKNOD},
		{unix.BPF_DEVCG_DEV_CHAR, 136, -1, everyAccess}, // pseudo-terminals
	}
	for _, d := range [][2]int64{
		{1, 3}, {1, 5}, {1, 7}, {1, 8}, {1, 9}, // null, zero, full, random, urandom
		{5, 0}, {5, 1}, {5, 2}, // tty, console, ptmx
		{tunMajor, tunMinor},
	} {
		rules = append(rules, deviceRule{unix.BPF_DEVCG_DEV_CHAR, d[0], d[1], everyAccess})
	}
	return rules
}

// allowUnified replaces the rules of a control group.
func allowUnified(group string, rules []deviceRule) error {
	dir, err := os.Open(group)
	if err != nil {
		return fmt.Errorf("open the pod's control group: %w", err)
	}
	defer dir.Close()
	if err := replaceFilter(dir, rules); err != nil {
		return fmt.Errorf("let the pod use its devices: %w", err)
	}
	return nil
}

// instruction is one of BPF's; see bpf(2) and linux/bpf.h.
type instruction struct {
	code   uint8
	dst    uint8 // a register
	src    uint8
	offset int16
	imm    int32
}

func encode(program []instruction) []byte {
	out := make([]byte, 0, 8*len(program))
	for _, i := range program {
		out = append(out, i.code, i.src<<4|i.dst)
		out = binary.NativeEndian.AppendUint16(out, uint16(i.offset))
		out = binary.NativeEndian.AppendUint32(out, uint32(i.imm))
	}
	return out
}

// Operations, from linux/bpf_common.h and linux/bpf.h.
const (
	loadWord    = unix.BPF_LDX | unix.BPF_MEM | unix.BPF_W
	and32       = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
	shiftRight  = unix.BPF_ALU | unix.BPF_RSH | unix.BPF_K
	move32      = unix.BPF_ALU | unix.BPF_MOV | unix.BPF_X
	moveConst   = unix.BPF_ALU64 | unix.BPF_MOV | unix.BPF_K
	jumpNot     = unix.BPF_JMP32 | unix.BPF_JNE | unix.BPF_K
	jumpNotSame = unix.BPF_JMP32 | unix.BPF_JNE | unix.BPF_X
	leave       = unix.BPF_JMP | unix.BPF_EXIT
)

// filter is the program that allows what one of the rules does. Its input is struct bpf_cgroup_dev_ctx: kind and
// access in the halves of a word, then major and minor.
func filter(rules []deviceRule) []instruction {
	const result, input, kind, access, major, minor, scratch = 0, 1, 2, 3, 4, 5, 6
	program := []instruction{
		{code: loadWord, dst: kind, src: input, offset: 0},
		{code: and32, dst: kind, imm: 0xffff},
		{code: loadWord, dst: access, src: input, offset: 0},
		{code: shiftRight, dst: access, imm: 16},
		{code: loadWord, dst: major, src: input, offset: 4},
		{code: loadWord, dst: minor, src: input, offset: 8},
	}
	for _, rule := range rules {
		var match []instruction
		match = append(match, instruction{code: jumpNot, dst: kind, imm: int32(rule.kind)})
		if rule.access != everyAccess {
			match = append(match,
				instruction{code: move32, dst: scratch, src: access},
				instruction{code: and32, dst: scratch, imm: int32(rule.access)},
				instruction{code: jumpNotSame, dst: scratch, src: access})
		}
		if rule.major >= 0 {
			match = append(match, instruction{code: jumpNot, dst: major, imm: int32(rule.major)})
		}
		if rule.minor >= 0 {
			match = append(match, instruction{code: jumpNot, dst: minor, imm: int32(rule.minor)})
		}
		match = append(match, instruction{code: moveConst, dst: result, imm: 1}, instruction{code: leave})
		for i := range match {
			if match[i].code == jumpNot || match[i].code == jumpNotSame {
				match[i].offset = int16(len(match) - i - 1) // to the next rule
			}
		}
		program = append(program, match...)
	}
	return append(program, instruction{code: moveConst, dst: result}, instruction{code: leave})
}

// replaceFilter makes the rules those of a control group, unless it has none and so allows everything.
func replaceFilter(group *os.File, rules []deviceRule) error {
	old, err := attachedFilters(group)
	if err != nil || len(old) == 0 {
		return err
	}
	fd, err := loadFilter(encode(filter(rules)))
	if err != nil {
		return fmt.Errorf("load the device filter: %w", err)
	}
	defer unix.Close(fd)
	// All attached ones must allow a device: the new one first, so that there is no moment without any.
	if err := attachFilter(unix.BPF_PROG_ATTACH, group, fd, unix.BPF_F_ALLOW_MULTI); err != nil {
		return fmt.Errorf("attach the device filter: %w", err)
	}
	for _, id := range old {
		if err := detachFilter(group, id); err != nil {
			return err
		}
	}
	return nil
}

// loadFilter gives a program to the kernel.
func loadFilter(program []byte) (int, error) {
	license := []byte("Apache-2.0\x00")
	var pinned runtime.Pinner // their addresses are handed to the kernel as numbers
	defer pinned.Unpin()
	pinned.Pin(&program[0])
	pinned.Pin(&license[0])
	load := struct {
		kind, count    uint32
		insns, license uint64
		rest           [96]byte
	}{
		kind: unix.BPF_PROG_TYPE_CGROUP_DEVICE, count: uint32(len(program) / 8),
		insns: uint64(uintptr(unsafe.Pointer(&program[0]))), license: uint64(uintptr(unsafe.Pointer(&license[0]))),
	}
	return bpf(unix.BPF_PROG_LOAD, unsafe.Pointer(&load), unsafe.Sizeof(load))
}

// attachedFilters are the identifiers of the device programs of a control group.
func attachedFilters(group *os.File) ([]uint32, error) {
	ids := make([]uint32, 64)
	var pinned runtime.Pinner
	defer pinned.Unpin()
	pinned.Pin(&ids[0])
	query := struct {
		target, kind, flags, attached uint32
		ids                           uint64
		count                         uint32
		rest                          [36]byte
	}{
		target: uint32(group.Fd()), kind: unix.BPF_CGROUP_DEVICE,
		ids: uint64(uintptr(unsafe.Pointer(&ids[0]))), count: uint32(len(ids)),
	}
	if _, err := bpf(unix.BPF_PROG_QUERY, unsafe.Pointer(&query), unsafe.Sizeof(query)); err != nil {
		return nil, fmt.Errorf("find the device filter: %w", err)
	}
	return ids[:query.count], nil
}

func detachFilter(group *os.File, id uint32) error {
	open := struct{ id, next, flags uint32 }{id: id}
	fd, err := bpf(unix.BPF_PROG_GET_FD_BY_ID, unsafe.Pointer(&open), unsafe.Sizeof(open))
	if err != nil {
		return fmt.Errorf("open the old device filter: %w", err)
	}
	defer unix.Close(fd)
	if err := attachFilter(unix.BPF_PROG_DETACH, group, fd, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("detach the old device filter: %w", err)
	}
	return nil
}

func attachFilter(command int, group *os.File, program int, flags uint32) error {
	attach := struct{ target, program, kind, flags, replace uint32 }{
		target: uint32(group.Fd()), program: uint32(program), kind: unix.BPF_CGROUP_DEVICE, flags: flags,
	}
	_, err := bpf(command, unsafe.Pointer(&attach), unsafe.Sizeof(attach))
	return err
}

func bpf(command int, attributes unsafe.Pointer, size uintptr) (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_BPF, uintptr(command), uintptr(attributes), size)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

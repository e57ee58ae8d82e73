package images

import (
	"bytes"
	"encoding/binary"
)

// pauseCode is the program of the pause image, x86-64 machine code. It holds a pod's namespaces, so it
// must only stay, reap what it inherits when the pod shares its PID namespace, and end when asked to:
//
//	rt_sigaction(SIGCHLD, SIG_IGN)          the kernel then reaps children by itself
//	rt_sigaction(SIGTERM, exit), SIGINT     PID 1 gets no signal that it does not handle
//	for { pause() }
//
// Written out because a pod's cost is what virtkit is about: this takes 4 KiB of memory, a Go program 1 MiB.
var pauseCode = []byte{
	// ignore: rt_sigaction(17, &sa_ign, NULL, 8)
	0xb8, 0x0d, 0x00, 0x00, 0x00, // mov eax, 13 (rt_sigaction)
	0xbf, 0x11, 0x00, 0x00, 0x00, // mov edi, 17 (SIGCHLD)
	0xbe, 0xc8, 0x00, 0x40, 0x00, // mov esi, sa_ign (0x4000c8)
	0x31, 0xd2, // xor edx, edx
	0x41, 0xba, 0x08, 0x00, 0x00, 0x00, // mov r10d, 8
	0x0f, 0x05, // syscall
	// rt_sigaction(15, &sa_exit, NULL, 8)
	0xb8, 0x0d, 0x00, 0x00, 0x00, // mov eax, 13
	0xbf, 0x0f, 0x00, 0x00, 0x00, // mov edi, 15 (SIGTERM)
	0xbe, 0xe8, 0x00, 0x40, 0x00, // mov esi, sa_exit (0x4000e8)
	0x0f, 0x05, // syscall
	// rt_sigaction(2, &sa_exit, NULL, 8)
	0xb8, 0x0d, 0x00, 0x00, 0x00, // mov eax, 13
	0xbf, 0x02, 0x00, 0x00, 0x00, // mov edi, 2 (SIGINT)
	0x0f, 0x05, // syscall
	// wait:
	0xb8, 0x22, 0x00, 0x00, 0x00, // mov eax, 34 (pause)
	0x0f, 0x05, // syscall
	0xeb, 0xf7, // jmp wait
	// exit, at offset 63:
	0xb8, 0x3c, 0x00, 0x00, 0x00, // mov eax, 60 (exit)
	0x31, 0xff, // xor edi, edi
	0x0f, 0x05, // syscall
}

const (
	pauseBase   = 0x400000
	pauseHeader = 64 + 56 // ELF header and one program header
	pauseData   = 0xc8    // the two struct kernel_sigaction, 32 bytes each
	pauseExit   = pauseHeader + 63
	sigIgn      = 1
	saRestorer  = 0x04000000 // the kernel delivers no signal without; ours never returns
)

// pauseBinary returns the program as an ELF executable of one segment.
func pauseBinary() []byte {
	var b bytes.Buffer
	le := func(values ...any) {
		for _, v := range values {
			// A bytes.Buffer takes everything and the values are of fixed size.
			_ = binary.Write(&b, binary.LittleEndian, v)
		}
	}
	size := uint64(pauseData + 64)
	b.WriteString("\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	le(uint16(2), uint16(62), uint32(1), uint64(pauseBase+pauseHeader)) // executable, x86-64, version, entry
	le(uint64(64), uint64(0), uint32(0))                                // program headers at, no sections, flags
	le(uint16(64), uint16(56), uint16(1), uint16(64), uint16(0), uint16(0))
	le(uint32(1), uint32(5), uint64(0), uint64(pauseBase), uint64(pauseBase), size, size, uint64(0x1000)) // load, r-x
	b.Write(pauseCode)
	b.Write(make([]byte, pauseData-b.Len()))
	le(uint64(sigIgn), uint64(saRestorer), uint64(0), uint64(0))
	exit := uint64(pauseBase + pauseExit)
	le(exit, uint64(saRestorer), exit, uint64(0))
	return b.Bytes()
}

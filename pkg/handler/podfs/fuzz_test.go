package podfs

import (
	"bytes"
	"encoding/binary"
	"path"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
)

// A process is in a pod exactly if a path of its control groups has a directory that the kubelet made for that pod.
func FuzzInPod(f *testing.F) {
	for _, text := range []string{
		"0::/kubepods/burstable/pod" + string(pod) + "/0123\n",
		"12:memory:/node1/kubepods/pod" + string(pod) + "/0123\n0::/\n",
		"0::/../../pod" + string(pod) + "/0123\n",
		"0::/kubepods.slice/kubepods-burstable-pod0d9d4d5e_7a33_4b9c_8c0f_3a4f0f8d2b11.slice/cri-1\n",
		"0::/a:b/pod" + string(pod) + "\n", "pod" + string(pod) + ":x:/\n", "0::\n::\n\n", "",
	} {
		f.Add(text, string(pod))
	}
	f.Add("0::/pod/x", "")
	f.Fuzz(func(t *testing.T, text, uid string) {
		got := inPod([]byte(text), types.UID(uid))
		want := false
		for line := range strings.SplitSeq(text, "\n") {
			_, rest, one := strings.Cut(line, ":")
			_, group, two := strings.Cut(rest, ":")
			for _, dir := range strings.Split(group, "/") {
				want = want || one && two && uid != "" &&
					(dir == "pod"+uid || strings.HasSuffix(dir, "-pod"+strings.ReplaceAll(uid, "-", "_")+".slice"))
			}
		}
		if got != want {
			t.Errorf("%q in pod %q: %t", text, uid, got)
		}
	})
}

// A control group is below the hierarchy's root whatever a process's says, and what is below it is the container's own.
func FuzzDeviceGroup(f *testing.F) {
	for _, text := range []string{
		"5:devices:/kubepods/podX/c\n0::/\n", "0::/kubepods.slice/cri-c.scope\n", "0::/../../podX/c\n", "0::/\n",
		"3:cpu,devices:/node1/podX/c\n0::/x\n", "0::x\n", "1:devices:/..\n", "0::/a/../b\n", "0::/a//b\n", "::\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := deviceGroup(text)
		if err != nil {
			return
		}
		joined := path.Join("/sys/fs/cgroup", got.path)
		if !strings.HasPrefix(joined, "/sys/fs/cgroup/") || !strings.HasSuffix(joined, got.path) || got.path == "/" {
			t.Errorf("%q leads to %q", text, got.path)
		}
		if got.v1 && !strings.Contains(text, "devices") {
			t.Errorf("%q is of version 1", text)
		}
	})
}

// What is mounted is found by its name, white space and all, and nothing else is.
func FuzzMountInfo(f *testing.F) {
	const line = "36 35 98:0 /mnt1 /mnt/parent rw,noatime master:1 - ext3 /dev/root rw\n"
	f.Add(line, "/mnt/parent")
	f.Add(line+`37 35 0:5 / /a\040b\134c rw - tmpfs none rw`+"\n", `/a b\c`)
	f.Add("37 35 0:5 /", "/")
	f.Add(`1 2 3 4 /a\9`, `/a\9`)
	f.Add("", "")
	f.Fuzz(func(t *testing.T, info, at string) {
		found := mountedAt(info, at)
		if found && at != "" && !strings.Contains(info, "/") && !strings.Contains(info, `\`) &&
			!strings.Contains(info, at) {
			t.Errorf("%q is mounted, by %q", at, info)
		}
		if at == "" || strings.ContainsRune(at, 0) || !strings.HasPrefix(at, "/") {
			return
		}
		// As the kernel writes it.
		var escaped strings.Builder
		for i := range len(at) {
			if strings.IndexByte(" \t\n\\#", at[i]) >= 0 {
				escaped.WriteString("\\" + string([]byte{'0' + at[i]>>6, '0' + at[i]>>3&7, '0' + at[i]&7}))
			} else {
				escaped.WriteByte(at[i])
			}
		}
		// strings.Fields knows more kinds of white space than the kernel.
		if len(strings.Fields("x"+escaped.String()+"x")) > 1 || !strings.HasSuffix("\n"+info, "\n") && info != "" {
			return
		}
		if !mountedAt(info+"1 2 0:3 / "+escaped.String()+" rw - tmpfs none rw\n", at) {
			t.Errorf("%q is not found", at)
		}
	})
}

// The record of devices is the kubelet's own file, but what it does not look like is an error and no more.
func FuzzCheckpoint(f *testing.F) {
	f.Add([]byte(`{"Data":{"PodDeviceEntries":[{"PodUID":"` + string(pod) +
		`","ContainerName":"compute","ResourceName":"a/b","DeviceIDs":{"-1":["1"]},"AllocResp":"GhoKCC9kZXYva3ZtEggvZGV2L2t2bRoCcnc="}],"RegisteredDevices":{"a/b":["1"]}},"Checksum":1}`))
	f.Add([]byte(`{"Data":null}`))
	f.Add([]byte(`{`))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := parseCheckpoint(text, pod)
		if err == nil && len(got.nodes)+len(got.named) > 0 && !strings.Contains(string(text), string(pod)) &&
			!strings.Contains(string(text), `\u`) {
			t.Errorf("%v, of another pod", got)
		}
		if none, err := parseCheckpoint(text, ""); err == nil && len(none.nodes)+len(none.named) > 0 {
			t.Errorf("%v, of no pod", none)
		}
	})
}

// Operations that filters have, from linux/bpf_common.h and linux/bpf.h.
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

// run interprets a filter's bytes as the kernel of a little-endian machine would, without the library that assembled
// them.
func run(t *testing.T, rules []deviceRule, kind, access uint16, major, minor uint32) uint64 {
	t.Helper()
	var program bytes.Buffer
	if err := filter(rules).Marshal(&program, binary.LittleEndian); err != nil {
		t.Fatal(err)
	}
	code := program.Bytes()
	var input [12]byte
	binary.LittleEndian.PutUint32(input[0:], uint32(access)<<16|uint32(kind))
	binary.LittleEndian.PutUint32(input[4:], major)
	binary.LittleEndian.PutUint32(input[8:], minor)
	var register [16]uint64
	for at := 0; ; at += 8 {
		if at+8 > len(code) {
			t.Fatal("the program runs over its end")
		}
		dst, src := code[at+1]&15, code[at+1]>>4
		offset, imm := int16(binary.LittleEndian.Uint16(code[at+2:])), int32(binary.LittleEndian.Uint32(code[at+4:]))
		switch code[at] {
		case loadWord:
			register[dst] = uint64(binary.LittleEndian.Uint32(input[offset:]))
		case and32:
			register[dst] = uint64(uint32(register[dst]) & uint32(imm))
		case shiftRight:
			register[dst] = uint64(uint32(register[dst]) >> uint32(imm))
		case move32:
			register[dst] = uint64(uint32(register[src]))
		case moveConst:
			register[dst] = uint64(int64(imm))
		case jumpNot:
			if uint32(register[dst]) != uint32(imm) {
				at += 8 * int(offset)
			}
		case jumpNotSame:
			if uint32(register[dst]) != uint32(register[src]) {
				at += 8 * int(offset)
			}
		case leave:
			return register[0]
		default:
			t.Fatalf("instruction %#x is not one of ours", code[at])
		}
	}
}

// The program says what the rules say: all that is asked for is in one rule of that kind and number.
func FuzzDeviceRules(f *testing.F) {
	f.Add([]byte{}, uint16(2), uint16(2), uint32(1), uint32(5))
	f.Add([]byte{1, 6, 7, 0, 9, 0, 2, 1, 255, 255, 255, 255}, uint16(1), uint16(6), uint32(7), uint32(9))
	f.Add([]byte{1, 6, 7, 0, 9, 0}, uint16(1), uint16(7), uint32(7), uint32(9))
	f.Add([]byte{2, 7, 136, 0, 255, 255}, uint16(2), uint16(4), uint32(136), uint32(1<<20-1))
	f.Fuzz(func(t *testing.T, raw []byte, kind, access uint16, major, minor uint32) {
		// As the kernel asks: a kind, some access, a number that it can have.
		kind, access, major, minor = kind%2+1, access%7+1, major%(1<<12), minor%(1<<20)
		var rules []deviceRule
		for ; len(raw) >= 6 && len(rules) < maxDevices; raw = raw[6:] {
			rule := deviceRule{
				kind: uint16(raw[0])%2 + 1, access: uint16(raw[1])%7 + 1,
				major: int64(binary.LittleEndian.Uint16(raw[2:])), minor: int64(binary.LittleEndian.Uint16(raw[4:])),
			}
			if rule.major == 1<<16-1 {
				rule.major = -1
			}
			if rule.minor == 1<<16-1 {
				rule.minor = -1
			}
			rules = append(rules, rule)
		}
		for _, all := range [][]deviceRule{rules, append(defaultRules(), rules...)} {
			want := uint64(0)
			for _, r := range all {
				if r.kind == kind && access&^r.access == 0 && (r.major < 0 || r.major == int64(major)) &&
					(r.minor < 0 || r.minor == int64(minor)) {
					want = 1
				}
			}
			if got := run(t, all, kind, access, major, minor); got != want {
				t.Errorf("kind %d, access %d, %d:%d: %d, want %d by %v", kind, access, major, minor, got, want, all)
			}
		}
	})
}

// Devices as rules allow just those devices.
func FuzzDevices(f *testing.F) {
	f.Add(uint32(8), uint32(0), uint32(8), uint32(1), uint8(6), true)
	f.Add(uint32(10), uint32(232), uint32(10), uint32(232), uint8(7), false)
	f.Fuzz(func(t *testing.T, major, minor, asked, askedMinor uint32, access uint8, block bool) {
		major, minor, asked, askedMinor = major%(1<<12), minor%(1<<20), asked%(1<<12), askedMinor%(1<<20)
		d, kind := Char(unix.Mkdev(major, minor)), uint16(unix.BPF_DEVCG_DEV_CHAR)
		if block {
			d, kind = Block(unix.Mkdev(major, minor)), unix.BPF_DEVCG_DEV_BLOCK
		}
		may := uint16(access)%7 + 1
		rules := Devices{d: may}.rules()
		for _, k := range []uint16{unix.BPF_DEVCG_DEV_BLOCK, unix.BPF_DEVCG_DEV_CHAR} {
			for want := uint16(1); want <= everyAccess; want++ {
				got := run(t, rules, k, want, asked, askedMinor) == 1
				if allowed := k == kind && asked == major && askedMinor == minor && want&^may == 0; got != allowed {
					t.Errorf("%v %d: %d of %d:%d is allowed: %t", d, may, want, asked, askedMinor, got)
				}
			}
		}
	})
}

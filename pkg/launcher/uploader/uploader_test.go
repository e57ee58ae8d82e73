package uploader

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/vm/imageformat"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// confinedBy is set in the environment of a process that is to become another program, confined.
const confinedBy = "VIRTKIT_TEST_CONFINED"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == confinedBy {
		fmt.Fprintln(os.Stderr, Confine(os.Args[2:]))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

const diskSize = 8 << 20

// rawDisk has some data, zeros between, and an end that is not whole.
func rawDisk() []byte {
	data := make([]byte, diskSize)
	r := rand.New(rand.NewPCG(1, 2))
	for _, at := range []int{0, 3 << 20, diskSize - 100_000} {
		for i := range 50_000 {
			data[at+i] = byte(r.Uint32())
		}
	}
	return data
}

// running is an upload whose server runs.
type running struct {
	t    *testing.T
	o    Options
	done chan error
	stop context.CancelFunc
}

func options(t *testing.T, image []byte) Options {
	t.Helper()
	dir := t.TempDir()
	qemu, err := exec.LookPath("qemu-img")
	if err != nil {
		t.Skip("qemu-img is not here")
	}
	self, err := os.Executable()
	check(t, err)
	return Options{
		Request:   uploads.Request{ID: "0123456789abcdef", Size: int64(len(image))},
		Directory: t.TempDir(), Scratch: dir, Socket: filepath.Join(dir, "upload.sock"),
		Capacity: 16 << 20, Idle: time.Minute, ConvertLimit: time.Minute, QEMUImg: qemu,
		Confined: []string{self, confinedBy}, TerminationLog: filepath.Join(dir, "log"),
		Log: slog.New(slog.DiscardHandler),
	}
}

func start(t *testing.T, o Options) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{t: t, o: o, done: make(chan error, 1), stop: cancel}
	go func() { r.done <- Run(ctx, o) }()
	t.Cleanup(cancel)
	return r
}

// dial connects and gives an order; the first reply comes back.
func (r *running) dial(order uploads.Order) (net.Conn, *bufio.Reader, uploads.Reply) {
	r.t.Helper()
	var conn net.Conn
	var err error
	for deadline := time.Now().Add(10 * time.Second); ; {
		if conn, err = net.Dial("unix", r.o.Socket); err == nil || time.Now().After(deadline) {
			break
		}
	}
	check(r.t, err)
	r.t.Cleanup(func() { conn.Close() })
	_, err = io.WriteString(conn, uploads.Encode(order)+"\n")
	check(r.t, err)
	in := bufio.NewReader(conn)
	return conn, in, r.reply(in)
}

func (r *running) reply(in *bufio.Reader) uploads.Reply {
	r.t.Helper()
	line, err := in.ReadBytes('\n')
	check(r.t, err)
	var reply uploads.Reply
	check(r.t, json.Unmarshal(line, &reply))
	return reply
}

// ended waits for the end and returns the termination message.
func (r *running) ended() uploads.State {
	r.t.Helper()
	select {
	case err := <-r.done:
		text, readErr := os.ReadFile(r.o.TerminationLog)
		check(r.t, readErr)
		state := uploads.ParseState(text)
		if state == nil {
			r.t.Fatalf("termination message %q", text)
		}
		if (err == nil) != (state.Phase == uploads.Succeeded) {
			r.t.Errorf("ended with %v and %+v", err, state)
		}
		return *state
	case <-time.After(time.Minute):
		r.t.Fatal("the server does not end")
		panic("unreachable")
	}
}

func (r *running) send(image []byte) uploads.State {
	r.t.Helper()
	conn, _, _ := r.dial(uploads.Order{Send: true, Session: "aa"})
	go func() {
		_, _ = conn.Write(image) // what is wrong the server says
		_, _ = io.WriteString(conn, sumOf(image))
	}()
	return r.ended()
}

func sumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func gzipped(t *testing.T, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(data)
	check(t, errors.Join(err, w.Close()))
	return out.Bytes()
}

// piped is what a program makes of data.
func piped(t *testing.T, data []byte, program string, args ...string) []byte {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skip(program + " is not here")
	}
	cmd := exec.Command(program, args...)
	cmd.Stdin = bytes.NewReader(data)
	out, err := cmd.Output()
	check(t, err)
	return out
}

// converted is an image of the disk in another format.
func converted(t *testing.T, data []byte, args ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	check(t, os.WriteFile(filepath.Join(dir, "raw"), data, 0o600))
	args = append([]string{"convert", "-f", "raw"}, args...)
	args = append(args, filepath.Join(dir, "raw"), filepath.Join(dir, "to"))
	if out, err := exec.Command("qemu-img", args...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := os.ReadFile(filepath.Join(dir, "to"))
	check(t, err)
	return out
}

// onDisk compares the disk on a claim with what it is to begin with, the rest being zero, and reports how much of it is
// allocated.
func onDisk(t *testing.T, dir string, want []byte) (size, allocated int64) {
	t.Helper()
	got, err := os.ReadFile(filepath.Join(dir, diskImage))
	check(t, err)
	if !bytes.Equal(got[:len(want)], want) || len(bytes.Trim(got[len(want):], "\x00")) > 0 {
		t.Error("the disk is not what was sent")
	}
	entries, err := os.ReadDir(dir)
	check(t, err)
	if len(entries) != 1 {
		t.Errorf("left on the claim: %v", entries)
	}
	var stat unix.Stat_t
	check(t, unix.Stat(filepath.Join(dir, diskImage), &stat))
	return stat.Size, stat.Blocks * 512
}

func TestUpload(t *testing.T) {
	data := rawDisk()
	for name, image := range map[string]func(*testing.T) []byte{
		"raw":          func(*testing.T) []byte { return data },
		"raw.gz":       func(t *testing.T) []byte { return gzipped(t, data) },
		"raw.xz":       func(t *testing.T) []byte { return piped(t, data, "xz", "-9") },
		"raw.zst":      func(t *testing.T) []byte { return piped(t, data, "zstd") },
		"qcow2":        func(t *testing.T) []byte { return converted(t, data, "-O", "qcow2") },
		"qcow2.gz":     func(t *testing.T) []byte { return gzipped(t, converted(t, data, "-O", "qcow2")) },
		"qcow2 packed": func(t *testing.T) []byte { return converted(t, data, "-c", "-O", "qcow2") },
		"vmdk": func(t *testing.T) []byte {
			return converted(t, data, "-O", "vmdk", "-o", "subformat=streamOptimized")
		},
		"vhd":  func(t *testing.T) []byte { return converted(t, data, "-O", "vpc", "-o", "force_size=on") },
		"vhdx": func(t *testing.T) []byte { return converted(t, data, "-O", "vhdx") },
		"vmdk sparse": func(t *testing.T) []byte {
			return converted(t, data, "-O", "vmdk", "-o", "subformat=monolithicSparse")
		},
		"vmdk.xz": func(t *testing.T) []byte {
			return piped(t, converted(t, data, "-O", "vmdk", "-o", "subformat=monolithicSparse"), "xz")
		},
		"vhd.gz": func(t *testing.T) []byte {
			return gzipped(t, converted(t, data, "-O", "vpc", "-o", "force_size=on"))
		},
		"vhd fixed": func(t *testing.T) []byte {
			return converted(t, data, "-O", "vpc", "-o", "subformat=fixed,force_size=on")
		},
		"vhd.fixed.gz": func(t *testing.T) []byte {
			return gzipped(t, converted(t, data, "-O", "vpc", "-o", "subformat=fixed,force_size=on"))
		},
		"vhdx.zst": func(t *testing.T) []byte { return piped(t, converted(t, data, "-O", "vhdx"), "zstd") },
		"vhdx fixed": func(t *testing.T) []byte {
			return converted(t, data, "-O", "vhdx", "-o", "subformat=fixed")
		},
	} {
		t.Run(name, func(t *testing.T) {
			sent := image(t)
			o := options(t, sent)
			if strings.Contains(name, "vhd") && strings.Contains(name, "fixed") && !strings.Contains(name, "vhdx") {
				o.Request.Format = imageformat.VHD // as virtctl says of a file of this name
			}
			o.Overhead = 0.25
			state := start(t, o).send(sent)
			if state.Phase != uploads.Succeeded || state.SHA256 != sumOf(sent) || state.Received != int64(len(sent)) ||
				state.VirtualSize != diskSize || state.DiskSize != 12<<20 ||
				string(state.Format) != strings.FieldsFunc(name, func(r rune) bool { return r == '.' || r == ' ' })[0] {
				t.Fatalf("%+v", state)
			}
			size, allocated := onDisk(t, o.Directory, data)
			if size != 12<<20 || allocated > 1<<20 {
				t.Errorf("the disk has %d bytes, %d of them allocated", size, allocated)
			}
		})
	}
}

// An ISO is a disk as it is, also one that is compressed.
func TestUploadISO(t *testing.T) {
	const sector, size = 2048, 2 << 20
	iso := make([]byte, size)
	copy(iso[16*sector:], "\x01CD001\x01") // the primary volume descriptor
	copy(iso[16*sector+40:], "VIRTKIT")
	copy(iso[17*sector:], "\xffCD001\x01") // the end of the descriptors
	copy(iso[size-sector:], "the last sector")
	for name, sent := range map[string][]byte{"iso": iso, "iso.gz": gzipped(t, iso)} {
		t.Run(name, func(t *testing.T) {
			o := options(t, sent)
			state := start(t, o).send(sent)
			if state.Phase != uploads.Succeeded || state.Format != imageformat.Raw || state.VirtualSize != size {
				t.Fatalf("%+v", state)
			}
			onDisk(t, o.Directory, iso)
		})
	}
}

// The connection is cut at the first byte, within and at the ends of what is read at once, before, within and after the
// checksum: the upload goes on where it is, and its disk is whole.
func TestCuts(t *testing.T) {
	data := rawDisk()
	for name, image := range map[string][]byte{"raw": data, "gz": gzipped(t, data)} {
		t.Run(name, func(t *testing.T) {
			o := options(t, image)
			r := start(t, o)
			all := append(bytes.Clone(image), sumOf(image)...)
			size := len(image)
			cuts := []int{
				0, 1, 511, 512, 4096, imageformat.HeadSize - 1, imageformat.HeadSize, chunk, chunk + 1,
				size - 1, size, size + 1, size + uploads.SumSize - 1,
			}
			at := 0
			for _, cut := range cuts {
				if cut < at || cut > len(all) {
					continue // the compressed image is shorter
				}
				conn, _, reply := r.dial(uploads.Order{Send: true, Session: "aa"})
				at = int(reply.State.Received)
				if reply.Refused != "" || reply.State.Phase != uploads.Receiving {
					t.Fatalf("at %d: %+v", cut, reply)
				}
				_, err := conn.Write(all[at:cut])
				check(t, err)
				check(t, conn.Close())
				at = min(cut, size)
				r.waitFor(func(s uploads.State) bool { return s.Received == int64(at) })
			}
			if state := r.send(nil); state.Phase == uploads.Succeeded {
				t.Errorf("succeeded with the checksum of nothing: %+v", state)
			}
		})
		t.Run(name+" to its end", func(t *testing.T) {
			o := options(t, image)
			r := start(t, o)
			conn, _, _ := r.dial(uploads.Order{Send: true, Session: "aa"})
			_, err := conn.Write(image[:len(image)/2])
			check(t, errors.Join(err, conn.Close()))
			r.waitFor(func(s uploads.State) bool { return s.Received == int64(len(image)/2) })
			conn, in, reply := r.dial(uploads.Order{Send: true, Session: "aa"})
			_, err = conn.Write(append(bytes.Clone(image[reply.State.Received:]), sumOf(image)...))
			check(t, err)
			for !reply.State.Phase.Final() {
				reply = r.reply(in)
			}
			if state := r.ended(); state.Phase != uploads.Succeeded || reply.State.Phase != state.Phase {
				t.Fatalf("%+v, and the client is told %+v", state, reply)
			}
			onDisk(t, o.Directory, data)
		})
	}
}

func (r *running) waitFor(is func(uploads.State) bool) {
	r.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; {
		conn, _, reply := r.dial(uploads.Order{})
		check(r.t, conn.Close())
		if is(reply.State) {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("the state is %+v", reply.State)
		}
	}
}

// TestRefused sends what is no image, or not one for this claim: each is refused with a sentence, and nothing is left.
func TestRefused(t *testing.T) {
	data := rawDisk()
	qcow2 := converted(t, data, "-O", "qcow2")
	changed := func(at int, text string) []byte {
		out := bytes.Clone(qcow2)
		copy(out[at:], text)
		return out
	}
	for name, test := range map[string]struct {
		image []byte
		sum   string
		want  string
		with  func(*Options)
	}{
		"wrong checksum":       {image: data, sum: sumOf(nil), want: "the checksum of what arrived"},
		"checksum of nonsense": {image: data, sum: strings.Repeat("\n", 64), want: "the checksum of what arrived"},
		"backing file":         {image: changed(8, "\x00\x00\x00\x00\x00\x00\x10\x00"), want: "backing file"},
		"data file":            {image: changed(79, "\x04"), want: "external file"},
		"size bomb":            {image: changed(28, "\x10"), want: "the claim has room for"},
		"raw and too large":    {image: make([]byte, 17<<20), want: "more than the 16777216 bytes"},
		"gzip bomb":            {image: gzipped(t, make([]byte, 64<<20)), want: "more than the 16777216 bytes"},
		"gzip cut short":       {image: gzipped(t, data)[:50_000], want: "gzip data is corrupt"},
		"gzip and more":        {image: append(gzipped(t, data), "more and more"...), want: "gzip data is corrupt"},
		"xz of nonsense":       {image: append([]byte("\xfd7zXZ\x00"), make([]byte, 100)...), want: "xz data"},
		"xz with a large window": {
			image: piped(t, data, "xz", "--lzma2=dict=512MiB"), want: "dictionary of more than 64 MiB",
		},
		"zstd with a large window": {image: piped(t, data, "zstd", "--long=30"), want: "zstd data"},
		"qcow2 cut short":          {image: qcow2[:300_000], want: "the qcow2 image is damaged"},
		"another's format":         {image: converted(t, data, "-O", "vdi"), want: "VDI"},
		"not what it is said to be": {
			image: data, want: "no footer", with: func(o *Options) { o.Request.Format = imageformat.VHD },
		},
		"damaged within": {
			image: damaged(qcow2), want: "the qcow2 image is damaged",
		},
		"never converted": {
			image: qcow2, want: "was not converted in", with: func(o *Options) { o.ConvertLimit = time.Nanosecond },
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(t, test.image)
			if test.with != nil {
				test.with(&o)
			}
			if test.sum == "" {
				test.sum = sumOf(test.image)
			}
			r := start(t, o)
			conn, _, _ := r.dial(uploads.Order{Send: true, Session: "aa"})
			go func() { _, _ = conn.Write(append(bytes.Clone(test.image), test.sum...)) }()
			state := r.ended()
			if state.Phase != uploads.Failed || !strings.Contains(state.Message, test.want) || state.Intact {
				t.Errorf("%+v, want %q", state, test.want)
			}
			entries, err := os.ReadDir(o.Directory)
			if err != nil || len(entries) != 0 {
				t.Errorf("left on the claim: %v, %v", entries, err)
			}
		})
	}
}

// damaged has a table that leads out of the file, which its header does not show.
func damaged(qcow2 []byte) []byte {
	out := bytes.Clone(qcow2)
	at := int(out[46])<<8 | int(out[45])<<16 | int(out[47])
	copy(out[at:], "\x80\x00\x00\x7f\xff\xff\x00\x00")
	return out
}

// A second client is refused while one sends, but for the same one whose connection hangs.
func TestTwoClients(t *testing.T) {
	data := rawDisk()
	r := start(t, options(t, data))
	first, _, _ := r.dial(uploads.Order{Send: true, Session: "aa"})
	_, err := first.Write(data[:1000])
	check(t, err)
	r.waitFor(func(s uploads.State) bool { return s.Received == 1000 })
	for _, session := range []string{"bb", ""} {
		_, _, reply := r.dial(uploads.Order{Send: true, Session: session})
		if !strings.Contains(reply.Refused, "another client") {
			t.Errorf("%q: %+v", session, reply)
		}
	}
	again, _, reply := r.dial(uploads.Order{Send: true, Session: "aa"})
	if reply.Refused != "" || reply.State.Received != 1000 {
		t.Fatalf("%+v", reply)
	}
	if _, err := io.Copy(io.Discard, first); err != nil {
		t.Errorf("the old connection: %v", err)
	}
	_, err = again.Write(append(bytes.Clone(data[1000:]), sumOf(data)...))
	check(t, err)
	if state := r.ended(); state.Phase != uploads.Succeeded {
		t.Errorf("%+v", state)
	}
}

// What is no order is no client, and many connections take no room of others for ever.
func TestStrangers(t *testing.T) {
	data := rawDisk()
	r := start(t, options(t, data))
	r.dial(uploads.Order{})
	for _, text := range []string{
		"\n", "GET / HTTP/1.1\r\n", strings.Repeat("x", uploads.MaxLine+1), "[]\n", "\"\n",
	} {
		conn, err := net.Dial("unix", r.o.Socket)
		check(t, err)
		_, err = io.WriteString(conn, text)
		check(t, err)
		if answer, _ := io.ReadAll(conn); len(answer) > 0 {
			t.Errorf("%.20q is answered with %q", text, answer)
		}
		check(t, conn.Close())
	}
	if state := r.send(data); state.Phase != uploads.Succeeded {
		t.Errorf("%+v", state)
	}
}

func TestEndsWithout(t *testing.T) {
	data := rawDisk()
	t.Run("expired", func(t *testing.T) {
		o := options(t, data)
		o.Idle = 50 * time.Millisecond
		check(t, os.WriteFile(filepath.Join(o.Directory, diskImage), []byte("old"), 0o600))
		state := start(t, o).ended()
		if !strings.Contains(state.Message, "has expired") || !state.Intact {
			t.Errorf("%+v", state)
		}
		if old, err := os.ReadFile(filepath.Join(o.Directory, diskImage)); err != nil || string(old) != "old" {
			t.Errorf("the old disk is %q, %v", old, err)
		}
	})
	t.Run("ended", func(t *testing.T) {
		r := start(t, options(t, data))
		conn, _, _ := r.dial(uploads.Order{Send: true, Session: "aa"})
		_, err := conn.Write(data[:5000])
		check(t, err)
		r.waitFor(func(s uploads.State) bool { return s.Received == 5000 })
		r.stop()
		if state := r.ended(); !strings.Contains(state.Message, "pod was ended: repeat the upload") || state.Intact ||
			!state.Interrupted {
			t.Errorf("%+v", state)
		}
	})
	t.Run("no claim", func(t *testing.T) {
		o := options(t, data)
		o.Directory += "/none"
		if state := start(t, o).ended(); state.Phase != uploads.Failed || !state.Intact {
			t.Errorf("%+v", state)
		}
	})
}

// The old disk is replaced at the end, and a link in its place leads nowhere.
func TestOldDiskIsReplaced(t *testing.T) {
	data := rawDisk()
	o := options(t, data)
	other := filepath.Join(t.TempDir(), "other")
	check(t, os.WriteFile(other, []byte("other"), 0o600))
	for _, name := range []string{diskImage, unfinished, staged} {
		check(t, os.Symlink(other, filepath.Join(o.Directory, name)))
	}
	if state := start(t, o).send(data); state.Phase != uploads.Succeeded {
		t.Fatalf("%+v", state)
	}
	onDisk(t, o.Directory, data)
	if text, err := os.ReadFile(other); err != nil || string(text) != "other" {
		t.Errorf("what the link leads to: %q, %v", text, err)
	}
}

// A device with old data on it has the image and zeros, and nothing else, afterwards.
func TestDevice(t *testing.T) {
	data := rawDisk()
	for name, image := range map[string][]byte{"raw": data, "qcow2": converted(t, data, "-O", "qcow2")} {
		t.Run(name, func(t *testing.T) {
			o := options(t, image)
			o.Device = filepath.Join(t.TempDir(), "device")
			check(t, os.WriteFile(o.Device, bytes.Repeat([]byte("old"), 4<<20), 0o600))
			state := start(t, o).send(image)
			if state.Phase != uploads.Succeeded || state.DiskSize != 12<<20 || state.VirtualSize != diskSize {
				t.Fatalf("%+v", state)
			}
			got, err := os.ReadFile(o.Device)
			check(t, err)
			if len(got) != 12<<20 || !bytes.Equal(got[:diskSize], data) || len(bytes.Trim(got[diskSize:], "\x00")) > 0 {
				t.Error("the device is not what was sent")
			}
		})
	}
	t.Run("cut", func(t *testing.T) {
		o := options(t, data)
		o.Device = filepath.Join(t.TempDir(), "device")
		check(t, os.WriteFile(o.Device, make([]byte, 12<<20), 0o600))
		r := start(t, o)
		conn, _, _ := r.dial(uploads.Order{Send: true, Session: "aa"})
		_, err := conn.Write(data[:1<<20])
		check(t, err)
		r.waitFor(func(s uploads.State) bool { return s.Received == 1<<20 })
		r.stop()
		if state := r.ended(); state.Intact {
			t.Errorf("half a device is intact: %+v", state)
		}
	})
}

// What converts images has no network, and limits.
func TestConfined(t *testing.T) {
	self, err := os.Executable()
	check(t, err)
	for script, want := range map[string]string{
		"ulimit -v":                       fmt.Sprint(addressSpace >> 10),
		"ulimit -t":                       fmt.Sprint(processorSec),
		"ulimit -c":                       "0",
		"grep Seccomp: /proc/self/status": "Seccomp:\t2",
		"grep NoNew /proc/self/status":    "NoNewPrivs:\t1",
	} {
		out, err := exec.Command(self, confinedBy, "/bin/sh", "-c", script).CombinedOutput()
		if err != nil || strings.TrimSpace(string(out)) != want {
			t.Errorf("%s: %q, %v; want %s", script, out, err, want)
		}
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not here")
	}
	out, err := exec.Command(self, confinedBy, bash, "-c", "exec 3<>/dev/tcp/127.0.0.1/1").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "Operation not permitted") {
		t.Errorf("a connection: %s, %v", out, err)
	}
}

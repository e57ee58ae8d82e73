package launcher

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/virtkit/virtkit/pkg/vm/disk"
)

// FuzzTakeImages takes images from the launcher of another node, which may be its guest's by now. Only images of the
// volumes that are expected come to be, each whole and no longer than it may be, and they are what was sent.
func FuzzTakeImages(f *testing.F) {
	for _, sent := range []string{
		"", "{}\n", "null\n", "[]\n", "{}", "\n", `{"volume":"seed","size":3}` + "\nabc{}\n",
		`{"volume":"answers","size":0}` + "\n" + `{"volume":"seed","size":1}` + "\nx{}\n",
		`{"volume":"seed","size":1}` + "\nx" + `{"volume":"seed","size":1}` + "\nx{}\n",
		`{"volume":"../seed","size":1}` + "\nx{}\n", `{"volume":"seed\u0000","size":1}` + "\nx{}\n",
		`{"volume":"seed","size":-1}` + "\n", `{"volume":"seed","size":9223372036854775807}` + "\nx",
		`{"volume":"seed","size":1e2}` + "\n", `{"VOLUME":"seed","size":9}` + "\nx",
		fmt.Sprintf(`{"volume":"seed","size":%d}`, disk.MaxConfigImage+1) + "\n", strings.Repeat("x", maxImageHeader+1),
	} {
		f.Add([]byte(sent))
	}
	volumes := []string{"seed", "answers"}
	f.Fuzz(func(t *testing.T, sent []byte) {
		dir := t.TempDir()
		to := filepath.Join(dir, "disks")
		if err := os.Mkdir(to, 0o700); err != nil {
			t.Fatal(err)
		}
		err := takeImages(bytes.NewReader(sent), to, volumes)
		if beside, listErr := os.ReadDir(dir); listErr != nil || len(beside) != 1 {
			t.Fatalf("%v beside the directory, %v", beside, listErr)
		}
		entries, listErr := os.ReadDir(to)
		if listErr != nil {
			t.Fatal(listErr)
		}
		total := 0
		for _, entry := range entries {
			image, readErr := os.ReadFile(filepath.Join(to, entry.Name()))
			volume, isImage := strings.CutSuffix(entry.Name(), disk.ConfigImageSuffix)
			if readErr != nil || !isImage || !slices.Contains(volumes, volume) || len(image) > disk.MaxConfigImage ||
				!bytes.Contains(sent, image) {
				t.Errorf("%s with %d bytes, %v", entry.Name(), len(image), readErr)
			}
			total += len(image)
		}
		if total > len(sent) || err == nil && len(entries) != len(volumes) {
			t.Errorf("%d images with %d bytes of %d that were sent, %v", len(entries), total, len(sent), err)
		}
	})
}

// FuzzReadWord reads what the other launcher of a migration says: a line, or nothing, and never more than a line may
// have.
func FuzzReadWord(f *testing.F) {
	for _, said := range []string{
		"arrived\n", "run\nstay\n", "\n", "", "run", "run\r\n", "\x00\n",
		strings.Repeat("x", maxWord-1) + "\n", strings.Repeat("x", maxWord) + "\n",
	} {
		f.Add([]byte(said))
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		in := bytes.NewReader(said)
		word, err := readWord(in)
		if took := len(said) - in.Len(); took > maxWord {
			t.Errorf("took %d bytes", took)
		}
		line, _, whole := strings.Cut(string(said), "\n")
		if whole = whole && len(line) < maxWord; whole != (err == nil) || whole && word != line {
			t.Errorf("%q, %v of %q", word, err, said)
		}
	})
}

// FuzzPassMessages passes libvirt's messages between two nodes. They come out as they went in, up to the first that is
// refused or is no message, and just the answers about the end of a migration are shown before.
func FuzzPassMessages(f *testing.F) {
	finished := rpcMessage(remoteProgram, procedureFinish, rpcReply, statusOK, []byte("pass"))
	f.Add([]byte{})
	f.Add(slices.Concat(rpcMessage(remoteProgram, 1, rpcCall, 0, []byte("x")), finished, finishCall(0)))
	f.Add(slices.Concat(finished, rpcMessage(remoteProgram, procedureFinish, rpcReply, 1, []byte("refuse")), finished))
	f.Add(finished[:rpcHeader+1])
	f.Add(finished[:rpcHeader-1])
	f.Add(slices.Concat([]byte{0, 0, 0, rpcHeader - 1}, finished[4:]))
	f.Add(slices.Concat([]byte{0xff, 0xff, 0xff, 0xff}, finished[4:]))
	f.Fuzz(func(t *testing.T, sent []byte) {
		refused := func(body []byte) bool { return bytes.HasPrefix(body, []byte("refuse")) }
		var passed bytes.Buffer
		var shown [][]byte
		err := passMessages(&passed, bytes.NewReader(sent), func(h rpc, body []byte) error {
			if h.program != remoteProgram || h.procedure != procedureFinish || h.kind != rpcReply {
				t.Errorf("%+v is shown", h)
			}
			shown = append(shown, body)
			if refused(body) {
				return errors.New("refused")
			}
			return nil
		}, rpcReply)
		if err == nil {
			t.Error("it ends, and no error")
		}

		var want [][]byte
		at := 0
		for at+rpcHeader <= len(sent) {
			word := func(i int) uint32 { return binary.BigEndian.Uint32(sent[at+4*i:]) }
			length := int(word(0))
			if length < rpcHeader || length > maxRPC {
				break
			}
			body := sent[at+rpcHeader : min(at+length, len(sent))]
			if word(1) == remoteProgram && word(3) == procedureFinish && word(4) == rpcReply {
				want = append(want, body)
				if refused(body) {
					break
				}
			}
			at += rpcHeader + len(body)
		}
		if !bytes.Equal(passed.Bytes(), sent[:at]) || !slices.EqualFunc(shown, want, bytes.Equal) {
			t.Errorf("of %x passed %x, shown %x; want %d bytes, shown %x", sent, passed.Bytes(), shown, at, want)
		}
	})
}

package launcher

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

// hostAgent is a guest agent whose guest is this machine: its programs and files are real.
type hostAgent struct {
	mu    sync.Mutex
	files map[int64]*os.File
	ended map[int64]string
	last  int64
	dir   string
	// noShell is a guest without /bin/sh. refuse answers a command with a refusal, reply changes what was answered.
	noShell bool
	refuse  map[string]string
	// killed are the numbers of the programs that were to be ended; none is, for they are not those of processes here.
	killed []string
	reply  func(command, answer string) string
}

func (a *hostAgent) answer(command string) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var c struct {
		Execute   string
		Arguments struct {
			Path, Mode  string
			Arg         []string
			Handle, PID int64
			Count       int
			Buf         []byte `json:"buf-b64"`
		}
	}
	if err := json.Unmarshal([]byte(command), &c); err != nil {
		return "", err
	}
	if why := a.refuse[c.Execute]; why != "" {
		return "", &hypervisor.AgentError{Message: why}
	}
	answer, err := a.do(c.Execute, c.Arguments.Path, c.Arguments.Mode, c.Arguments.Arg,
		c.Arguments.Handle+c.Arguments.PID, c.Arguments.Count, c.Arguments.Buf)
	if err != nil {
		return "", &hypervisor.AgentError{Message: err.Error()}
	}
	if a.reply != nil {
		answer = a.reply(c.Execute, answer)
	}
	return answer, nil
}

func (a *hostAgent) do(what, path, mode string, arguments []string, number int64, count int, data []byte,
) (string, error) {
	if a.files == nil {
		a.files, a.ended = map[int64]*os.File{}, map[int64]string{}
	}
	a.last++
	switch file := a.files[number]; what {
	case "guest-exec":
		if a.noShell {
			return "", errors.New("Failed to execute child process “/bin/sh” (No such file or directory)")
		}
		if len(arguments) == 3 && arguments[1] == endTree {
			a.killed = append(a.killed, arguments[2])
			a.ended[a.last] = `{"return":{"exited":true,"exitcode":0}}`
			return fmt.Sprintf(`{"return":{"pid":%d}}`, a.last), nil
		}
		code, out, errOut, err := a.run(append([]string{path}, arguments...))
		if err != nil {
			return "", err
		}
		a.ended[a.last] = fmt.Sprintf(`{"return":{"exited":true,"exitcode":%s,"out-data":%q,"err-data":%q}}`, code,
			base64.StdEncoding.EncodeToString(out), base64.StdEncoding.EncodeToString(errOut))
		return fmt.Sprintf(`{"return":{"pid":%d}}`, a.last), nil
	case "guest-exec-status":
		return a.ended[number], nil
	case "guest-file-open":
		flags := map[string]int{"rb": os.O_RDONLY, "wb": os.O_WRONLY | os.O_CREATE | os.O_TRUNC}[mode]
		file, err := os.OpenFile(path, flags, 0o666)
		if err != nil {
			return "", err
		}
		a.files[a.last] = file
		return fmt.Sprintf(`{"return":%d}`, a.last), nil
	case "guest-file-write":
		n, err := file.Write(data[:min(len(data), 50_000)]) // a part of it
		return fmt.Sprintf(`{"return":{"count":%d,"eof":false}}`, n), err
	case "guest-file-read":
		data := make([]byte, count)
		n, err := io.ReadFull(file, data)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return "", err
		}
		return fmt.Sprintf(`{"return":{"count":%d,"buf-b64":%q,"eof":%t}}`, n,
			base64.StdEncoding.EncodeToString(data[:n]), n < count), nil
	case "guest-file-flush":
		return `{"return":{}}`, nil
	case "guest-file-close":
		delete(a.files, number)
		return `{"return":{}}`, file.Close()
	}
	return "", errors.New("unknown")
}

// run runs a program. A shell tells its exit code, for the launcher, which is in this process too, waits for all
// children.
func (a *hostAgent) run(program []string) (code string, out, errOut []byte, err error) {
	var outputs [2]*os.File
	for i := range outputs {
		if outputs[i], err = os.CreateTemp(a.dir, "output-"); err != nil {
			return "", nil, nil, err
		}
		defer outputs[i].Close()
	}
	r, w, err := os.Pipe()
	if err != nil {
		return "", nil, nil, err
	}
	defer r.Close()
	shell := exec.Command("/bin/sh", append([]string{"-c", `"$@" 3>&-; echo $? >&3`, "sh"}, program...)...)
	shell.Stdout, shell.Stderr, shell.Env = outputs[0], outputs[1], append(os.Environ(), "LC_ALL=C")
	shell.ExtraFiles = []*os.File{w}
	err = errors.Join(shell.Start(), w.Close())
	said, readErr := io.ReadAll(r) // to the program's end
	out, outErr := os.ReadFile(outputs[0].Name())
	errOut, errOutErr := os.ReadFile(outputs[1].Name())
	return strings.TrimSpace(string(said)), out, errOut, errors.Join(err, readErr, outErr, errOutErr)
}

// open is how many files the agent holds.
func (a *hostAgent) open() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.files)
}

// copied is what came back of a copy.
type copied struct {
	opened  *pb.CopyFileOpened
	data    []byte
	written uint64
	result  *pb.CopyFileResult
}

func (l *life) copy(ctx context.Context, start *pb.CopyFileStart, data []byte) (c copied, err error) {
	stream, err := l.client.CopyFile(ctx)
	if err != nil {
		return c, err
	}
	send := func(m *pb.CopyFileRequest) {
		if err == nil {
			err = stream.Send(m)
		}
	}
	send(&pb.CopyFileRequest{What: &pb.CopyFileRequest_Start{Start: start}})
	if !start.Pull {
		for ; len(data) > 0; data = data[min(len(data), 100_000):] {
			send(&pb.CopyFileRequest{What: &pb.CopyFileRequest_Data{Data: data[:min(len(data), 100_000)]}})
		}
		send(&pb.CopyFileRequest{What: &pb.CopyFileRequest_End{End: &pb.CopyFileEnd{}}})
	}
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return c, nil
		}
		if err != nil {
			return c, err
		}
		switch what := m.What.(type) {
		case *pb.CopyFileResponse_Opened:
			c.opened = what.Opened
		case *pb.CopyFileResponse_Data:
			c.data = append(c.data, what.Data...)
		case *pb.CopyFileResponse_Written:
			c.written = what.Written
		case *pb.CopyFileResponse_Result:
			c.result = what.Result
		}
	}
}

// withHost is a guest that is this machine, and an empty directory in it.
func withHost(t *testing.T) (*life, *hostAgent, string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	l, agent := begin(t), &hostAgent{dir: t.TempDir()}
	l.memory.agent = agent.answer
	if _, err := l.start(demo()); err != nil {
		t.Fatal(err)
	}
	return l, agent, dir
}

func sumOfBytes(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// left are the files of a directory, and those of it that are hidden.
func left(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func TestCopyFileThereAndBack(t *testing.T) {
	l, agent, dir := withHost(t)
	data := bytes.Repeat([]byte("0123456789\n\x00"), 100_000)
	mode := uint32(0o640)
	name := filepath.Join(dir, "a file $(touch x)")
	pushed, err := l.copy(t.Context(),
		&pb.CopyFileStart{Path: dir, Name: filepath.Base(name), IntoDirectory: true, Mode: &mode}, data)
	if err != nil {
		t.Fatal(err)
	}
	if r := pushed.result; r.GetBytes() != uint64(len(data)) || pushed.written != uint64(len(data)) ||
		r.GetSha256() != sumOfBytes(data) || !r.GetVerified() || r.GetInPlace() || pushed.opened.GetPath() != name {
		t.Errorf("pushed %v, %v", pushed.opened, r)
	}
	info, err := os.Stat(name)
	if err != nil || info.Mode() != 0o640 || info.Size() != int64(len(data)) {
		t.Fatalf("%v, %v", info, err)
	}
	pulled, err := l.copy(t.Context(), &pb.CopyFileStart{Pull: true, Path: name}, nil)
	if err != nil || !bytes.Equal(pulled.data, data) || pulled.opened.GetSize() != uint64(len(data)) ||
		pulled.opened.GetMode() != 0o640 ||
		pulled.result.GetSha256() != sumOfBytes(data) || !pulled.result.GetVerified() || pulled.result.GetChanged() {
		t.Errorf("%d bytes, %v, %v, %v", len(pulled.data), pulled.opened, pulled.result, err)
	}
	if empty, err := l.copy(t.Context(), &pb.CopyFileStart{Path: filepath.Join(dir, "empty")}, nil); err != nil ||
		empty.result.GetBytes() != 0 || !empty.result.GetVerified() {
		t.Errorf("empty: %v, %v", empty.result, err)
	}
	if info, err := os.Stat(filepath.Join(dir, "empty")); err != nil || info.Mode() != 0o644 {
		t.Errorf("a new file without a mode: %v, %v", info, err)
	}
	if got := left(t, dir); got != "a file $(touch x) empty" || agent.open() != 0 {
		t.Errorf("left: %s, %d open", got, agent.open())
	}
	l.end(t)
}

// A file that is there is replaced as a whole, through links, and passes its mode on to one that has none.
func TestCopyFileReplaces(t *testing.T) {
	l, _, dir := withHost(t)
	target, link := filepath.Join(dir, "sub", "script"), filepath.Join(dir, "link")
	if err := errors.Join(os.Mkdir(filepath.Dir(target), 0o700), os.WriteFile(target, []byte("old"), 0o750),
		os.Chmod(target, 0o750), os.Symlink("sub/script", link)); err != nil {
		t.Fatal(err)
	}
	before, err := os.Open(target)
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	pushed, err := l.copy(t.Context(), &pb.CopyFileStart{Path: link}, []byte("new"))
	if err != nil || pushed.opened.GetPath() != target {
		t.Fatalf("%v, %v", pushed.opened, err)
	}
	data, err := os.ReadFile(target)
	info, statErr := os.Stat(target)
	if err != nil || statErr != nil || string(data) != "new" || info.Mode() != 0o750 {
		t.Errorf("%q, %v, %v, %v", data, info, err, statErr)
	}
	if old, err := io.ReadAll(before); err != nil || string(old) != "old" {
		t.Errorf("who has the old file open reads %q, %v", old, err)
	}
	if now, err := os.Readlink(link); err != nil || now != "sub/script" {
		t.Errorf("the link is %q, %v", now, err)
	}
	l.end(t)
}

func TestCopyFileFailures(t *testing.T) {
	l, agent, dir := withHost(t)
	fifo := filepath.Join(dir, "fifo")
	if err := errors.Join(syscall.Mkfifo(fifo, 0o600),
		os.WriteFile(filepath.Join(dir, "there"), []byte("old"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		start  *pb.CopyFileStart
		refuse map[string]string
		code   codes.Code
		want   string
	}{
		"no file": {
			&pb.CopyFileStart{Pull: true, Path: dir + "/none"}, nil, codes.NotFound, "none: there is no such file",
		},
		"pull a directory": {
			&pb.CopyFileStart{Pull: true, Path: dir}, nil, codes.Aborted, "is a directory in the guest",
		},
		"pull a pipe":    {&pb.CopyFileStart{Pull: true, Path: fifo}, nil, codes.Aborted, "not a regular file"},
		"push to a pipe": {&pb.CopyFileStart{Path: fifo}, nil, codes.Aborted, "not a regular file"},
		"no directory":   {&pb.CopyFileStart{Path: dir + "/none/x"}, nil, codes.NotFound, "no such directory"},
		"to a directory": {&pb.CopyFileStart{Path: dir}, nil, codes.Aborted, "is a directory"},
		"not a directory": {
			&pb.CopyFileStart{Path: dir + "/there", Name: "x", IntoDirectory: true}, nil, codes.Aborted,
			"is not a directory",
		},
		"relative": {&pb.CopyFileStart{Path: "x"}, nil, codes.InvalidArgument, "no home directory"},
		"no space": {
			&pb.CopyFileStart{Path: dir + "/there"},
			map[string]string{"guest-file-write": "failed to write to file: No space left on device"},
			codes.OutOfRange,
			"no space left",
		},
		"no space at last": {
			&pb.CopyFileStart{Path: dir + "/there"},
			map[string]string{"guest-file-flush": "failed to flush file: No space left on device"},
			codes.OutOfRange,
			"no space left",
		},
		"denied": {
			&pb.CopyFileStart{Pull: true, Path: dir + "/there"},
			map[string]string{"guest-file-open": "failed to open file: Permission denied"},
			codes.PermissionDenied,
			"permission denied",
		},
		"read-only": {
			&pb.CopyFileStart{Path: dir + "/there"},
			map[string]string{"guest-file-open": "failed to open file: Read-only file system"},
			codes.PermissionDenied,
			"read-only",
		},
		"forbidden": {
			&pb.CopyFileStart{Path: dir + "/there"},
			map[string]string{"guest-file-open": "Command guest-file-open has been disabled"},
			codes.FailedPrecondition,
			"not allowed to copy files",
		},
		"forbidden already": {
			&pb.CopyFileStart{Pull: true, Path: dir + "/there"},
			map[string]string{
				"guest-exec":      "Command guest-exec has been disabled",
				"guest-file-open": "is a directory",
			},
			codes.Aborted, "is a directory",
		},
		"odd": {
			&pb.CopyFileStart{Pull: true, Path: dir + "/there"},
			map[string]string{"guest-file-read": "failed to read file: Stale handle"},
			codes.Aborted,
			"the guest says: failed to read",
		},
	} {
		agent.mu.Lock()
		agent.refuse = tc.refuse
		agent.mu.Unlock()
		_, err := l.copy(t.Context(), tc.start, []byte("new"))
		if status.Code(err) != tc.code || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %v %q", name, err, tc.code, tc.want)
		}
		if data, err := os.ReadFile(filepath.Join(dir, "there")); err != nil || string(data) != "old" ||
			left(t, dir) != "fifo there" {
			t.Errorf("%s: %q, %v, left %s", name, data, err, left(t, dir))
		}
	}
	if agent.open() != 0 {
		t.Errorf("%d files are open", agent.open())
	}
	l.end(t)
}

// What the guest has on its disk is compared with what was sent, and with what was read.
func TestCopyFileDamage(t *testing.T) {
	l, agent, dir := withHost(t)
	name := filepath.Join(dir, "x")
	agent.reply = func(command, answer string) string {
		if command == "guest-file-close" {
			for _, dirty := range []string{name, filepath.Join(roomIn(dir), "file")} {
				if file, err := os.OpenFile(dirty, os.O_WRONLY, 0); err == nil {
					file.Write([]byte("X"))
					file.Close()
				}
			}
		}
		return answer
	}
	if _, err := l.copy(t.Context(), &pb.CopyFileStart{Path: name},
		[]byte("abc")); status.Code(err) != codes.DataLoss || left(t, dir) != "" {
		t.Errorf("%v, left %s", err, left(t, dir))
	}
	if err := os.WriteFile(name, []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	pulled, err := l.copy(t.Context(), &pb.CopyFileStart{Pull: true, Path: name}, nil)
	if err != nil || pulled.result.GetVerified() || !pulled.result.GetChanged() || string(pulled.data) != "abc" {
		t.Errorf("%v, %v", pulled.result, err)
	}
	l.end(t)
}

// Whoever owns the directory above puts a link in the way of what is written: nothing that it leads to is changed.
func TestCopyFileMoved(t *testing.T) {
	l, agent, dir := withHost(t)
	other := t.TempDir()
	precious := filepath.Join(other, "file")
	if err := errors.Join(os.WriteFile(precious, []byte("abc"), 0o600), os.Chmod(other, 0o700)); err != nil {
		t.Fatal(err)
	}
	agent.reply = func(command, answer string) string {
		if room := roomIn(dir); command == "guest-file-close" && room != "" {
			if err := errors.Join(os.Rename(room, filepath.Join(dir, "aside")), os.Symlink(other, room)); err != nil {
				t.Error(err)
			}
		}
		return answer
	}
	mode := uint32(0o666)
	if _, err := l.copy(t.Context(), &pb.CopyFileStart{Path: filepath.Join(dir, "x"), Mode: &mode},
		[]byte("abc")); status.Code(err) != codes.Aborted || !strings.Contains(err.Error(), "moved the file") {
		t.Errorf("%v", err)
	}
	info, err := os.Stat(precious)
	if err != nil || info.Mode() != 0o600 || left(t, dir) != "aside" {
		t.Errorf("%v, %v, left %s", info, err, left(t, dir))
	}
	l.end(t)
}

// roomIn is where a file that goes into a directory is written first.
func roomIn(dir string) string {
	found, _ := filepath.Glob(filepath.Join(dir, ".virtkit-*"))
	return strings.Join(found, "")
}

// Without a shell, and in Windows, a file is written under its name.
func TestCopyFileInPlace(t *testing.T) {
	l, agent, dir := withHost(t)
	agent.noShell = true
	name := filepath.Join(dir, "x")
	pushed, err := l.copy(t.Context(), &pb.CopyFileStart{Path: dir, Name: "x", IntoDirectory: true}, []byte("abc"))
	data, readErr := os.ReadFile(name)
	if err != nil || readErr != nil || string(data) != "abc" || !pushed.result.GetInPlace() ||
		pushed.result.GetVerified() {
		t.Errorf("%q, %v, %v, %v", data, pushed.result, err, readErr)
	}
	pulled, err := l.copy(t.Context(), &pb.CopyFileStart{Pull: true, Path: name}, nil)
	if err != nil || string(pulled.data) != "abc" || pulled.opened.Size != nil || pulled.result.GetVerified() ||
		pulled.result.GetChanged() {
		t.Errorf("%q, %v, %v", pulled.data, pulled, err)
	}
	t.Chdir(dir)
	agent.noShell = false
	pushed, err = l.copy(t.Context(), &pb.CopyFileStart{Path: `C:\dir\`, Name: "x.txt", IntoDirectory: true},
		[]byte("abc"))
	if err != nil || !pushed.result.GetInPlace() || left(t, dir) != `C:\dir\x.txt x` {
		t.Errorf("%v, %v, left %s", pushed.result, err, left(t, dir))
	}
	l.end(t)
}

// A caller that leaves in the middle of a file leaves nothing, neither in the guest nor in its agent.
func TestCopyFileLeft(t *testing.T) {
	l, agent, dir := withHost(t)
	for _, cancels := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := l.client.CopyFile(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range []*pb.CopyFileRequest{
			{What: &pb.CopyFileRequest_Start{Start: &pb.CopyFileStart{Path: filepath.Join(dir, "x")}}},
			{What: &pb.CopyFileRequest_Data{Data: []byte("half")}},
		} {
			if err := stream.Send(m); err != nil {
				t.Fatal(err)
			}
		}
		for written := false; !written; {
			m, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			written = m.GetWritten() == 4
		}
		if roomIn(dir) == "" || agent.open() != 1 {
			t.Fatalf("left %s, %d open", left(t, dir), agent.open())
		}
		if cancels {
			cancel()
		} else if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(time.Minute); left(t, dir) != "" || agent.open() != 0; runtime.Gosched() {
			if time.Now().After(deadline) {
				t.Fatalf("left %s, %d open", left(t, dir), agent.open())
			}
		}
		cancel()
	}
	l.end(t)
}

// A script that goes on in the guest, such as the checksum of a large file, ends with the caller that it is for, and
// nothing of the file stays.
func TestCopyFileLeftInAScript(t *testing.T) {
	for name, pull := range map[string]bool{"push": false, "pull": true} {
		l, agent, dir := withHost(t)
		var at string // the number of the program that does not end
		file := filepath.Join(dir, "x")
		if pull {
			if err := os.WriteFile(file, []byte("abc"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		closed := false
		agent.reply = func(command, answer string) string {
			switch {
			case command == "guest-file-close":
				closed = true // the next script looks at all of the file
			case command == "guest-exec" && closed && at == "":
				at = strings.TrimSuffix(strings.TrimPrefix(answer, `{"return":{"pid":`), "}}")
			case command == "guest-exec-status" && at != "" && len(agent.killed) == 0:
				cancel()
				return `{"return":{"exited":false}}`
			}
			return answer
		}
		_, err := l.copy(ctx, &pb.CopyFileStart{Pull: pull, Path: file}, []byte("abc"))
		if status.Code(err) != codes.Canceled {
			t.Errorf("%s: %v", name, err)
		}
		killed := func() []string {
			agent.mu.Lock()
			defer agent.mu.Unlock()
			return agent.killed
		}
		for deadline := time.Now().Add(time.Minute); len(killed()) == 0 || roomIn(dir) != ""; runtime.Gosched() {
			if time.Now().After(deadline) {
				t.Fatalf("%s: killed %v, left %s", name, killed(), left(t, dir))
			}
		}
		if got := killed(); len(got) != 1 || got[0] != at {
			t.Errorf("%s: killed %v, want %s", name, got, at)
		}
		l.end(t)
	}
}

// What copies have left that nobody could end goes with the next copy to that directory, once it is a day old; what is
// somebody else's, or younger, or holds anything else, stays.
func TestCopyFileSweeps(t *testing.T) {
	l, _, dir := withHost(t)
	for name, file := range map[string]string{
		".virtkit-OLD": "file", ".virtkit-YOUNG": "file", ".virtkit-OTHER": "precious", ".virtkit-BUSY": "file",
		"virtkit-else": "file",
	} {
		room := filepath.Join(dir, name)
		if err := errors.Join(os.Mkdir(room, 0o700), os.WriteFile(filepath.Join(room, file), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		if name == ".virtkit-YOUNG" {
			continue
		}
		past := time.Now().Add(-50 * time.Hour)
		if name != ".virtkit-BUSY" { // its file is still written
			if err := os.Chtimes(filepath.Join(room, file), past, past); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chtimes(room, past, past); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(dir, "virtkit-else"), filepath.Join(dir, ".virtkit-LINK")); err != nil {
		t.Fatal(err)
	}
	if _, err := l.copy(t.Context(), &pb.CopyFileStart{Path: filepath.Join(dir, "x")}, []byte("abc")); err != nil {
		t.Fatal(err)
	}
	want := ".virtkit-BUSY .virtkit-LINK .virtkit-OTHER .virtkit-YOUNG virtkit-else x"
	if got := left(t, dir); got != want {
		t.Errorf("left %s, want %s", got, want)
	}
	l.end(t)
}

func TestCopyFilesAreBounded(t *testing.T) {
	l, _, dir := withHost(t)
	for i := range maxCopies {
		stream, err := l.client.CopyFile(t.Context())
		if err == nil {
			err = stream.Send(&pb.CopyFileRequest{
				What: &pb.CopyFileRequest_Start{Start: &pb.CopyFileStart{Path: fmt.Sprintf("%s/%d", dir, i)}},
			})
		}
		if err == nil {
			_, err = stream.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := l.copy(t.Context(), &pb.CopyFileStart{Path: dir + "/more"}, nil)
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("%v", err)
	}
	l.end(t)
}

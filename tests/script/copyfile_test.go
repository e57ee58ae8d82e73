package script

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/stream/copyfile"
	"github.com/virtkit/virtkit/pkg/stream/exec"
)

// guestFiles are the files of a guest, by their path. Its directories are /etc and /tmp.
type guestFiles struct {
	mu      sync.Mutex
	content map[string][]byte
}

// copyFile is a guest's end of copies. Files with some names go wrong.
func (c *cluster) copyFile(w http.ResponseWriter, r *http.Request) {
	if !c.agentOf(w, r) {
		return
	}
	conn, err := stream.Accept(w, r, stream.Options{})
	if err != nil {
		return
	}
	defer conn.Close()
	_, payload, err := exec.ReadFrame(conn)
	var request copyfile.Request
	if err != nil || json.Unmarshal(payload, &request) != nil {
		return
	}
	if err := request.Check(); err != nil {
		exec.WriteJSON(conn, copyfile.ChannelResult, refusedCopy(metav1.StatusReasonBadRequest, err.Error()))
		return
	}
	if request.Direction == copyfile.Pull {
		c.files.pull(conn, request.Path)
		return
	}
	c.files.push(conn, request)
}

func refusedCopy(reason metav1.StatusReason, message string) copyfile.Result {
	return copyfile.Result{
		Failure: &metav1.Status{Reason: reason, Code: http.StatusUnprocessableEntity, Message: message},
	}
}

func hexSum(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func (f *guestFiles) pull(conn *stream.Conn, path string) {
	f.mu.Lock()
	data, ok := f.content[path]
	f.mu.Unlock()
	switch path {
	case "/etc/busy":
		exec.WriteJSON(conn, copyfile.ChannelOpened, copyfile.Opened{Path: path})
		exec.WriteAll(conn, copyfile.ChannelData, []byte("half"))
		io.Copy(io.Discard, conn)
		return
	case "/etc/break":
		exec.WriteJSON(conn, copyfile.ChannelOpened, copyfile.Opened{Path: path})
		exec.WriteAll(conn, copyfile.ChannelData, []byte("half"))
		conn.CloseWithReason(stream.CodeGoingAway, "virt-handler is restarting; the copy is ended")
		return
	}
	if !ok {
		exec.WriteJSON(conn, copyfile.ChannelResult,
			refusedCopy(copyfile.ReasonNoFile, path+": there is no such file or directory in the guest"))
		return
	}
	size, mode := int64(len(data)), uint32(0o600)
	exec.WriteJSON(conn, copyfile.ChannelOpened, copyfile.Opened{Path: path, Size: &size, Mode: &mode})
	exec.WriteAll(conn, copyfile.ChannelData, data)
	result := copyfile.Result{Bytes: size, SHA256: hexSum(data), Verified: true}
	switch path {
	case "/etc/damaged":
		result.SHA256 = hexSum(nil)
	case "/etc/log":
		result.Verified, result.Changed = false, true
	}
	exec.WriteJSON(conn, copyfile.ChannelResult, result)
}

func (f *guestFiles) push(conn *stream.Conn, request copyfile.Request) {
	path := request.Path
	directory := strings.TrimSuffix(path, "/")
	switch isDirectory := directory == "/etc" || directory == "/tmp"; {
	case isDirectory && request.Name == "":
		exec.WriteJSON(conn, copyfile.ChannelResult,
			refusedCopy(copyfile.ReasonRefused, path+" is a directory in the guest; name a file"))
		return
	case request.IntoDirectory && !isDirectory:
		exec.WriteJSON(conn, copyfile.ChannelResult,
			refusedCopy(copyfile.ReasonRefused, path+" is not a directory in the guest"))
		return
	case isDirectory:
		path = directory + "/" + request.Name
	}
	exec.WriteJSON(conn, copyfile.ChannelOpened, copyfile.Opened{Path: path})
	var data bytes.Buffer
	for {
		channel, payload, err := exec.ReadFrame(conn)
		if err != nil || channel != copyfile.ChannelData {
			return
		}
		if len(payload) == 0 {
			break
		}
		data.Write(payload)
		if data.Len() > 1<<20 {
			exec.WriteJSON(conn, copyfile.ChannelResult,
				refusedCopy(copyfile.ReasonFull, path+": the guest has no space left there"))
			return
		}
		exec.WriteJSON(conn, copyfile.ChannelWritten, copyfile.Written{Bytes: int64(data.Len())})
	}
	f.mu.Lock()
	if f.content == nil {
		f.content = map[string][]byte{}
	}
	f.content[path] = data.Bytes()
	f.mu.Unlock()
	exec.WriteJSON(conn, copyfile.ChannelResult, copyfile.Result{
		Bytes: int64(data.Len()), SHA256: hexSum(data.Bytes()), Verified: !copyfile.Windows(path),
		InPlace: copyfile.Windows(path),
	})
}

package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/handler/podfs"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// uploadTimeout bounds the first answer of an upload's pod.
const uploadTimeout = 10 * time.Second

var uploadResource = schema.GroupResource{Resource: "persistentvolumeclaims/" + uploads.Subresource}

// uploadState answers with the state that an upload's pod says, as JSON of uploads.State.
func (s *Server) uploadState(w http.ResponseWriter, r *http.Request) {
	conn, reply, err := s.openUpload(r, uploads.Order{})
	if err != nil {
		refuse(w, name(r), err)
		return
	}
	conn.Close()
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, uploads.Encode(reply.State)) // an error means that the client is gone
}

// uploadData joins a websocket to an upload's pod: first the pod says from where it wants bytes, in a line of JSON
// (uploads.Reply), then the client sends them and their checksum, and the pod says how it goes on, to the end.
func (s *Server) uploadData(w http.ResponseWriter, r *http.Request) {
	session := r.URL.Query().Get("session")
	if err := uploads.CheckSession(session); err != nil {
		refuse(w, name(r), apierrors.NewBadRequest(err.Error()))
		return
	}
	if !stream.IsUpgrade(r) {
		refuse(w, name(r), apierrors.NewBadRequest("this is a stream: ask for a websocket"))
		return
	}
	conn, reply, err := s.openUpload(r, uploads.Order{Send: true, Session: session})
	if err == nil && reply.Refused != "" {
		conn.Close()
		err = apierrors.NewConflict(uploadResource, name(r).Name, errors.New(uploads.OneLine(reply.Refused)))
	}
	if err != nil {
		refuse(w, name(r), err)
		return
	}
	s.active.Add(1)
	defer s.active.Done()
	client, err := stream.Accept(w, r, stream.Options{})
	if err != nil {
		conn.Close() // Accept has answered
		return
	}
	if _, err := client.Write([]byte(uploads.Encode(reply) + "\n")); err != nil {
		conn.Close()
		_ = client.Close() // err says more, and nobody is there to hear it
		return
	}
	if err := stream.Splice(s.ctx, client, conn); err != nil {
		s.Log.Debug("upload's connection ended", "pod", name(r).String(), "err", err)
	}
}

// openUpload connects to an upload's pod and gives it an order; the first reply comes back, with texts that are safe.
func (s *Server) openUpload(r *http.Request, order uploads.Order) (*net.UnixConn, uploads.Reply, error) {
	pod, uid := name(r), types.UID(r.URL.Query().Get("uid"))
	if s.UploadPod == nil {
		return nil, uploads.Reply{}, apierrors.NewNotFound(uploadResource, pod.Name)
	}
	ctx, cancel := context.WithTimeout(r.Context(), uploadTimeout)
	defer cancel()
	if err := s.UploadPod(ctx, pod, uid); err != nil {
		return nil, uploads.Reply{}, err
	}
	run, err := podfs.OpenRun(s.PodsDir, uid)
	if err != nil {
		return nil, uploads.Reply{}, notListening(err)
	}
	defer run.Close()
	conn, err := run.Dial(ctx, names.SocketUpload)
	if err != nil {
		return nil, uploads.Reply{}, notListening(err)
	}
	reply, err := s.order(conn, uid, order)
	if err != nil {
		conn.Close()
		return nil, uploads.Reply{}, apierrors.NewServiceUnavailable("the upload's pod does not answer: " + Words(err))
	}
	return conn, reply, nil
}

func notListening(err error) error {
	return apierrors.NewServiceUnavailable("the upload's pod takes no bytes yet: " + Words(err))
}

// order sends an order to the server of a pod, makes sure that it is the pod's, and reads its first line.
func (s *Server) order(conn *net.UnixConn, pod types.UID, order uploads.Order) (uploads.Reply, error) {
	var reply uploads.Reply
	if err := s.UploadPeer(conn, pod); err != nil {
		return reply, err
	}
	if err := conn.SetDeadline(time.Now().Add(uploadTimeout)); err != nil {
		return reply, err
	}
	if _, err := io.WriteString(conn, uploads.Encode(order)+"\n"); err != nil {
		return reply, err
	}
	line, err := readLine(conn)
	if err != nil {
		return reply, err
	}
	if err := json.Unmarshal(line, &reply); err != nil {
		return reply, errors.New("what it says is no answer")
	}
	state := uploads.ParseState([]byte(uploads.Encode(reply.State)))
	if state == nil {
		return reply, errors.New("what it says is no state of an upload")
	}
	reply.State = *state
	return reply, conn.SetDeadline(time.Time{})
}

// readLine reads a line, and nothing that follows it.
func readLine(conn io.Reader) ([]byte, error) {
	var line []byte
	one := make([]byte, 1)
	for len(line) < uploads.MaxLine {
		if _, err := io.ReadFull(conn, one); err != nil {
			return nil, fmt.Errorf("read its answer: %w", err)
		}
		if one[0] == '\n' {
			return line, nil
		}
		line = append(line, one[0])
	}
	return nil, fmt.Errorf("its answer has more than %d bytes", uploads.MaxLine)
}

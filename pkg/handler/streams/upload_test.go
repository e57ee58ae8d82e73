package streams

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/vm/uploads"
)

// An upload's pod is reached by its UID when it is one of this node's and its peer is its server; what it says is
// bounded and one line.
func TestUpload(t *testing.T) {
	good := uploads.Encode(uploads.Reply{State: uploads.State{Phase: uploads.Receiving, Received: 3, Size: 9}}) + "\n"
	busy := strings.Replace(good, `}`, `},"refused":"another client sends\nnow"`, 1)
	for name, test := range map[string]struct {
		answer string
		uid    types.UID
		peer   error
		code   int
		want   string
	}{
		"state":             {answer: good, uid: pod, code: http.StatusOK, want: `"received":3`},
		"another pod's UID": {answer: good, uid: "other", code: http.StatusNotFound},
		"no UID":            {answer: good, code: http.StatusNotFound},
		"not its server": {
			answer: good, uid: pod, peer: errors.New("is not in pod"), code: 503, want: "is not in pod",
		},
		"no answer":           {answer: "{}\n", uid: pod, code: 503, want: "no state of an upload"},
		"nonsense":            {answer: "\x1b[2J\n", uid: pod, code: 503, want: "no answer"},
		"a line without end":  {answer: strings.Repeat("x", uploads.MaxLine+1), uid: pod, code: 503, want: "more than"},
		"more than there was": {answer: strings.Replace(good, "3", "30", 1), uid: pod, code: 503, want: "no state"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSetup(t)
			s.uploads(test.answer, test.peer)
			response, err := http.Get(s.uploadURL("state", test.uid).String())
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			text, err := io.ReadAll(response.Body)
			if err != nil || response.StatusCode != test.code || !strings.Contains(string(text), test.want) {
				t.Errorf("%d %s, %v", response.StatusCode, text, err)
			}
		})
	}
	t.Run("bytes", func(t *testing.T) {
		s := newSetup(t)
		s.uploads(good, nil)
		conn, err := stream.DialURL(t.Context(), s.uploadURL("data", pod), nil, nil, stream.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("bytes")); err != nil {
			t.Fatal(err)
		}
		if err := conn.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(conn); err != nil || string(text) != good+"bytes" {
			t.Errorf("%q, %v", text, err)
		}
	})
	t.Run("another client sends", func(t *testing.T) {
		s := newSetup(t)
		s.uploads(busy, nil)
		_, err := stream.DialURL(t.Context(), s.uploadURL("data", pod), nil, nil, stream.Options{})
		if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "another client sends now") {
			t.Errorf("%v", err)
		}
	})
}

// uploads serves the socket of an upload's pod: it answers each order with a text and then says all that comes.
func (s *setup) uploads(answer string, peer error) {
	s.server.UploadPod = func(_ context.Context, name types.NamespacedName, uid types.UID) error {
		if name.Name != "up" || uid != pod {
			return apierrors.NewNotFound(uploadResource, name.Name)
		}
		return nil
	}
	s.server.UploadPeer = func(*net.UnixConn, types.UID) error { return peer }
	conns := s.device(names.SocketUpload)
	ended := make(chan struct{})
	served := make(chan struct{})
	go func() {
		defer close(served)
		select {
		case conn := <-conns:
			defer conn.Close()
			in := bufio.NewReader(conn)
			if _, err := in.ReadString('\n'); err != nil {
				return
			}
			if _, err := io.WriteString(conn, answer); err != nil {
				return
			}
			_, _ = io.Copy(conn, in) // to the end, however it comes
		case <-ended:
		}
	}()
	s.t.Cleanup(func() {
		close(ended)
		<-served
	})
}

func (s *setup) uploadURL(what string, uid types.UID) *url.URL {
	target, err := url.Parse(s.http.URL + "/v1/namespaces/ns/uploads/up/" + what)
	if err != nil {
		s.t.Fatal(err)
	}
	target.RawQuery = url.Values{"session": {"aa"}, "uid": {string(uid)}}.Encode()
	return target
}

// Package guestfstest is an API server with a claim and a pod for it, for the tests of sessions of guestfs.
package guestfstest

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/client/action/client/clienttest"
	"github.com/virtkit/virtkit/pkg/stream"
)

// Namespace and Claim are what there is; Pod is the claim's pod.
const (
	Namespace = "team-a"
	Claim     = "disk"
	Pod       = "libguestfs-tools-disk"

	pods = "/api/v1/namespaces/" + Namespace + "/pods"
)

// Server is an API server with a claim that nobody uses.
type Server struct {
	*clienttest.API
	t *testing.T

	mu  sync.Mutex
	pod *corev1.Pod
	// Status is that of the pod from its creation on.
	Status corev1.PodStatus
	// Created, unless nil, gets the pod that is made, of which the client then hears nothing.
	Created func(*corev1.Pod)
	// Unanswered cuts the connection of a creation once the pod is made.
	Unanswered bool
	// Failing is how many looks at the pod fail from now on, and Lingers how many show it after its deletion.
	Failing, Lingers int
	// Looked, unless nil, is called at each look at the pod.
	Looked func()
	// Run is what a program in the pod does with its stream; it returns the program's exit code, Cut or Doubtful.
	Run func(process stream.Packets, command []string, query url.Values) int
	// Unread, unless nil, answers the looks at a note itself as long as it returns true.
	Unread func(w http.ResponseWriter, r *http.Request) bool
	// uid is that of the last deletion's precondition.
	uid types.UID
	// lease is the last one. leases has how often it was taken, and lines how many came over it.
	lease         *stream.Conn
	leases, lines int
	// notes are the files with exit codes.
	notes map[string]int
}

// What Run returns of a program whose end is not known: the stream is cut, or, without its end, has Kubernetes' word of
// exit code 0.
const (
	Cut      = -1
	Doubtful = -2
)

// New starts one whose pod runs as soon as it is made, and whose programs end well.
func New(t *testing.T, mode corev1.PersistentVolumeMode) *Server {
	t.Helper()
	s := &Server{
		API: clienttest.New(t), t: t, Status: corev1.PodStatus{Phase: corev1.PodRunning}, notes: map[string]int{},
	}
	s.Run = func(stream.Packets, []string, url.Values) int { return 0 }
	s.Put("/api/v1/namespaces/"+Namespace+"/persistentvolumeclaims/"+Claim, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: Claim, UID: "claim-uid"},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeMode: &mode},
	})
	s.Put("/apis/subresources.kubevirt.io/v1/guestfs", map[string]string{"gsImage": "example.com/libguestfs-tools:v1"})
	s.Put(pods, http.HandlerFunc(s.all))
	s.Put(pods+"/"+Pod, http.HandlerFunc(s.one))
	s.Put(pods+"/"+Pod+"/attach", http.HandlerFunc(s.attach))
	s.Put(pods+"/"+Pod+"/exec", http.HandlerFunc(s.exec))
	return s
}

// Made returns the pod that there is, nil for none.
func (s *Server) Made() *corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pod
}

// Deleted returns the precondition of the last deletion of the pod.
func (s *Server) Deleted() types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.uid
}

// Lease returns how often the lease was taken, and how many lines came.
func (s *Server) Lease() (leases, lines int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leases, s.lines
}

// EndLease cuts the lease.
func (s *Server) EndLease() {
	s.mu.Lock()
	lease := s.lease
	s.mu.Unlock()
	if err := lease.Close(); err != nil {
		s.t.Error(err)
	}
}

func (s *Server) answer(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(object); err != nil {
		s.t.Error(err)
	}
}

func (s *Server) all(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == http.MethodGet {
		s.answer(w, http.StatusOK, corev1.PodList{})
		return
	}
	pod := &corev1.Pod{}
	if err := json.NewDecoder(r.Body).Decode(pod); err != nil {
		s.t.Error(err)
	}
	pod.UID, pod.Status, s.pod = "pod-uid", s.Status, pod
	if s.Created != nil {
		s.Created(pod)
		<-r.Context().Done() // nobody answers
		return
	}
	if s.Unanswered {
		panic(http.ErrAbortHandler)
	}
	s.answer(w, http.StatusCreated, pod)
}

func (s *Server) one(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pod == nil {
		s.answer(w, http.StatusNotFound, metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
			Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound, Message: `pods "` + Pod + `" not found`,
		})
		return
	}
	pod := *s.pod
	if r.Method == http.MethodGet {
		if s.Looked != nil {
			s.Looked()
		}
		if s.Failing > 0 {
			s.Failing--
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		if s.pod.DeletionTimestamp != nil {
			if s.Lingers--; s.Lingers <= 0 {
				s.pod = nil
			}
		}
	}
	if r.Method == http.MethodDelete {
		var options metav1.DeleteOptions
		if err := json.NewDecoder(r.Body).Decode(&options); err != nil || options.Preconditions == nil {
			s.t.Errorf("a deletion of any pod: %v", err)
		} else {
			s.uid = *options.Preconditions.UID
		}
		pod.DeletionTimestamp = new(metav1.Now())
		if s.pod = &pod; s.Lingers == 0 {
			s.pod = nil
		}
	}
	s.answer(w, http.StatusOK, pod)
}

func (s *Server) accept(w http.ResponseWriter, r *http.Request) *stream.Conn {
	conn, err := stream.Accept(w, r, stream.Options{Subprotocol: stream.PodProcessProtocol})
	if err != nil {
		s.t.Error(err)
		return nil
	}
	if got := conn.Subprotocol(); got != stream.PodProcessProtocol {
		s.t.Errorf("the stream's protocol is %q", got)
	}
	return conn
}

func (s *Server) attach(w http.ResponseWriter, r *http.Request) {
	conn := s.accept(w, r)
	if conn == nil {
		return
	}
	defer conn.Close()
	s.mu.Lock()
	s.leases++
	s.lease = conn
	s.mu.Unlock()
	buffer := make([]byte, stream.BufferSize)
	for {
		n, err := stream.Packets{Conn: conn}.Read(buffer)
		if err != nil {
			return
		}
		if slices.Equal(buffer[:n], []byte("\x00\n")) {
			s.mu.Lock()
			s.lines++
			s.mu.Unlock()
		}
	}
}

// bash -c SCRIPT guestfs FILE, and the program, whose exit code is noted in the file: without one that is printed.
const words = 5

func (s *Server) exec(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	command := query["command"]
	if len(command) == words && s.Unread != nil && s.Unread(w, r) {
		return
	}
	conn := s.accept(w, r)
	if conn == nil {
		return
	}
	defer conn.Close()
	if len(command) < words || command[0] != "/bin/bash" || command[1] != "-c" || command[3] != "guestfs" {
		s.t.Errorf("%q notes no exit code", command)
		return
	}
	far, note, code := stream.Packets{Conn: conn}, command[words-1], 0
	if len(command) > words {
		code = s.Run(far, command[words:], query)
	} else {
		s.mu.Lock()
		text := ""
		if code, ok := s.notes[note]; ok {
			text = strconv.Itoa(code)
		}
		s.mu.Unlock()
		if _, err := far.Write([]byte("\x01" + text + "\n")); err != nil {
			s.t.Error(err)
		}
	}
	if code >= 0 {
		s.mu.Lock()
		s.notes[note] = code
		s.mu.Unlock()
	}
	status := metav1.Status{Status: metav1.StatusSuccess}
	switch {
	case code == Cut:
		return
	case code > 0:
		status = metav1.Status{
			Status: metav1.StatusFailure, Reason: "NonZeroExitCode", Message: "command terminated",
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{
				{Type: "ExitCode", Message: strconv.Itoa(code)},
			}},
		}
	}
	data, err := json.Marshal(status)
	if err == nil {
		_, err = stream.Packets{Conn: conn}.Write(append([]byte{3}, data...))
	}
	if err != nil && !strings.Contains(err.Error(), "closed") {
		s.t.Error(err)
	}
}

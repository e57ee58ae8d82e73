// Package streams serves the guests of one node to virt-api: consoles and screens as websockets, and
// the requests that go straight to a launcher. It listens with mutual TLS; whoever gets through is
// virt-api, which has authorized the user.
//
//	GET /v1/namespaces/NS/virtualmachineinstances/NAME/console[?join=true][&tail=BYTES]
//	GET /v1/namespaces/NS/virtualmachineinstances/NAME/vnc[?preserveSession=true]
//	GET /v1/namespaces/NS/virtualmachineinstances/NAME/usbredir
//	GET /v1/namespaces/NS/virtualmachineinstances/NAME/portforward/PORT[/{tcp,udp}][?uid=UID]
//	GET /v1/namespaces/NS/virtualmachineinstances/NAME/vsock?port=PORT[&tls=false]
//	GET /v1/namespaces/NS/virtualmachineinstances/NAME/vnc/screenshot[?moveCursor=true]
//	PUT /v1/namespaces/NS/virtualmachineinstances/NAME/{pause,unpause,reset,softreboot}
//	GET /v1/namespaces/NS/virtualmachineinstances/NAME/{guestosinfo,userlist,filesystemlist}
//	GET /v1/namespaces/NS/virtualmachineinstances/NAME/firewall
//	PUT /v1/namespaces/NS/virtualmachineinstances/NAME/unfreeze
//	PUT …/freeze?after=DURATION[&withoutAgent=pause[&memory=VOLUME]]
//	GET /v1/namespaces/NS/virtualmachineinstances/NAME/exec
//	GET /v1/namespaces/NS/virtualmachineinstances/NAME/log/{serial,qemu}
//	GET /v1/stats[?namespace=NS]
//	GET /v1/namespaces/NS/uploads/POD/state?uid=UID
//	GET /v1/namespaces/NS/uploads/POD/data?uid=UID[&session=SESSION]
//
// The websockets speak the protocol of package stream. Errors before the upgrade are metav1.Status.
package streams

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/handler/podfs"
	"github.com/virtkit/virtkit/pkg/handler/usage"
	"github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/report/nwfilter"
	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/stream/quota"
)

// maxTail is the most of the console's past that a client can ask for, bytes.
const maxTail = 1 << 20

// requestTimeout bounds a request to a launcher.
const requestTimeout = 30 * time.Second

var resource = schema.GroupResource{Group: "kubevirt.io", Resource: "virtualmachineinstances"}

// Server serves one node.
type Server struct {
	// PodsDir is the kubelet's pod directory.
	PodsDir string
	// Launcher finds the launcher of a VMI that runs on this node, and its pod.
	Launcher func(types.NamespacedName) (launcherpb.LauncherClient, types.UID, error)
	// Dial connects to a port of a guest on this node; protocol is tcp or udp.
	Dial func(ctx context.Context, vmi types.NamespacedName, protocol string, port uint16) (net.Conn, error)
	// DialVSOCK connects to a vsock port of a guest on this node, and GuestTLS adds TLS to the program that listens
	// there.
	DialVSOCK func(ctx context.Context, vmi types.NamespacedName, port uint32) (net.Conn, error)
	GuestTLS  *tls.Config
	// Runs is the UID of the VMI of that name whose guest is on this node and has not moved away; empty when there is
	// none.
	Runs func(types.NamespacedName) types.UID
	// Leaving gives what reports whether the guest of a pod has moved to another node or is about to; nil is never.
	Leaving func(types.UID) func() bool
	// Guest gives a context that ends when the guest of a VMI is gone from this node; its cause is an Err of this
	// package. nil is never.
	Guest func(types.NamespacedName) context.Context
	// Usage reads what all guests of this node use.
	Usage *usage.Reader
	// Firewall returns what the guest of a VMI on this node may send.
	Firewall func(types.NamespacedName) (*nwfilter.Filter, error)
	// UploadPod fails unless a pod of that name and UID takes an upload on this node, and UploadPeer unless a
	// connection to its socket is one to its server. nil serves no uploads.
	UploadPod  func(ctx context.Context, pod types.NamespacedName, uid types.UID) error
	UploadPeer func(conn *net.UnixConn, pod types.UID) error
	// Limits bound how many streams are open; the zero value does not.
	Limits quota.Limits
	Log    *slog.Logger

	consoles consoles
	screens  screens
	usb      usbPorts
	resets   resets
	quota    *quota.Quota
	room     *semaphore.Weighted // of maxHeld

	ctx    context.Context
	cancel context.CancelFunc
	active sync.WaitGroup
	once   sync.Once
}

func (s *Server) init() {
	s.once.Do(func() {
		s.ctx, s.cancel = context.WithCancel(context.Background())
		s.quota = quota.New(s.Limits)
		if s.consoles.stall == 0 {
			s.consoles.stall = stall
		}
		s.consoles.log, s.consoles.open, s.consoles.opening = s.Log, map[string]*console{}, map[string]chan struct{}{}
		s.screens.open = map[types.UID]*screen{}
		s.usb.used = map[types.UID][names.USBRedirections]bool{}
		s.room = semaphore.NewWeighted(maxHeld)
	})
}

// Handler serves the paths above.
func (s *Server) Handler() http.Handler {
	s.init()
	const vmi = "/v1/namespaces/{namespace}/virtualmachineinstances/{name}/"
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+vmi+"console", s.console)
	mux.HandleFunc("GET "+vmi+"vnc", s.vnc)
	mux.HandleFunc("GET "+vmi+"usbredir", s.usbRedir)
	mux.HandleFunc("GET "+vmi+"vsock", s.vsock)
	s.agentRoutes(mux, vmi)
	mux.HandleFunc("GET "+vmi+"log/{source}", s.log)
	mux.HandleFunc("GET "+vmi+"firewall", s.firewall)
	mux.HandleFunc("GET /v1/stats", s.stats)
	mux.HandleFunc("GET /v1/namespaces/{namespace}/uploads/{name}/state", s.uploadState)
	mux.HandleFunc("GET /v1/namespaces/{namespace}/uploads/{name}/data", s.uploadData)
	mux.HandleFunc("GET "+vmi+"portforward/{port}", s.portForward)
	mux.HandleFunc("GET "+vmi+"portforward/{port}/{protocol}", s.portForward)
	mux.HandleFunc("GET "+vmi+"vnc/screenshot", s.screenshot)
	for verb, call := range map[string]func(context.Context, launcherpb.LauncherClient) error{
		"pause": func(ctx context.Context, l launcherpb.LauncherClient) error {
			_, err := l.Pause(ctx, &launcherpb.PauseRequest{})
			return err
		},
		"unpause": func(ctx context.Context, l launcherpb.LauncherClient) error {
			_, err := l.Unpause(ctx, &launcherpb.UnpauseRequest{})
			return err
		},
		"softreboot": func(ctx context.Context, l launcherpb.LauncherClient) error {
			_, err := l.SoftReboot(ctx, &launcherpb.SoftRebootRequest{})
			return err
		},
	} {
		mux.HandleFunc("PUT "+vmi+verb, func(w http.ResponseWriter, r *http.Request) { s.request(w, r, call) })
	}
	mux.HandleFunc("PUT "+vmi+"reset", s.reset)
	return s.logged(s.limited(mux))
}

// logged logs each request and how long it took, for debugging. The query is left out: it may have what a user
// typed.
func (s *Server) logged(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		s.Log.Debug("request", "method", r.Method, "path", r.URL.Path, "user", r.Header.Get("X-Remote-User"))
		next.ServeHTTP(w, r)
		s.Log.Debug("request done", "method", r.Method, "path", r.URL.Path, "took", time.Since(start))
	})
}

// Close ends all streams, which http.Server.Shutdown does not, and waits for them.
func (s *Server) Close() {
	s.init()
	s.consoles.finish(stream.CodeGoingAway, "virt-handler is restarting; connect again")
	s.cancel()
	s.active.Wait()
}

func name(r *http.Request) types.NamespacedName {
	return types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("name")}
}

func (s *Server) request(
	w http.ResponseWriter, r *http.Request, call func(context.Context, launcherpb.LauncherClient) error,
) {
	launcher, _, err := s.Launcher(name(r))
	if err == nil {
		ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
		defer cancel()
		err = call(ctx, launcher)
	}
	if err != nil {
		refuse(w, name(r), err)
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

func (s *Server) console(w http.ResponseWriter, r *http.Request) {
	tail, err := tailOf(r)
	if err != nil {
		refuse(w, name(r), err)
		return
	}
	run, pod, err := s.open(w, r)
	if err != nil {
		return
	}
	defer run.Close()
	var replay func() []byte
	if tail > 0 {
		replay = func() []byte {
			past, err := s.tail(run, pod, tail, r.URL.Query().Get("sinceReset") == "true")
			if err != nil {
				s.Log.Info("console log not replayed", "vmi", name(r).String(), "err", err)
			}
			return past
		}
	}
	s.active.Add(1)
	defer s.active.Done()
	err = s.consoles.attach(r.Context(), string(pod), r.URL.Query().Get("join") == "true", from(r),
		func(ctx context.Context) (net.Conn, error) {
			conn, err := run.Dial(ctx, names.SocketSerial)
			if err != nil {
				return nil, err
			}
			return s.leavingConn(conn, pod), nil
		},
		func() (*stream.Conn, error) { return stream.Accept(w, r, stream.Options{}) },
		replay)
	if err != nil {
		refuse(w, name(r), noSocket(err, "serial console", "autoattachSerialConsole"))
	}
}

func tailOf(r *http.Request) (int64, error) {
	text := r.URL.Query().Get("tail")
	if text == "" {
		return 0, nil
	}
	tail, err := strconv.ParseInt(text, 10, 64)
	if err != nil || tail < 0 {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("tail=%q is not a number of bytes", text))
	}
	return min(tail, maxTail), nil
}

// open finds the run volume of the VMI's pod; it answers the request when it cannot.
func (s *Server) open(w http.ResponseWriter, r *http.Request) (*podfs.Run, types.UID, error) {
	var err error
	if !stream.IsUpgrade(r) {
		err = apierrors.NewBadRequest("this is a stream: ask for a websocket")
		refuse(w, name(r), err)
		return nil, "", err
	}
	_, pod, err := s.Launcher(name(r))
	if err != nil {
		err = stream.NewNotRunning(err.Error())
	}
	var run *podfs.Run
	if err == nil {
		run, err = podfs.OpenRun(s.PodsDir, pod)
	}
	if err != nil {
		refuse(w, name(r), err)
		return nil, "", err
	}
	return run, pod, nil
}

// from names the client in the error of its predecessor, if virt-api has said who it is.
func from(r *http.Request) string {
	if user := r.Header.Get("X-Remote-User"); user != "" {
		return " (" + user + ")"
	}
	return ""
}

// noSocket explains why a device's socket does not answer.
func noSocket(err error, device, field string) error {
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) {
		return stream.NewNotRunning(fmt.Sprintf(
			"the guest has no %s: it does not run, or spec.domain.devices.%s is false", device, field))
	}
	return err
}

// refuse answers a request that failed.
func refuse(w http.ResponseWriter, vmi types.NamespacedName, err error) {
	stream.WriteStatus(w, statusOf(vmi, err))
}

// statusOf returns an error as a status of the API.
func statusOf(vmi types.NamespacedName, err error) metav1.Status {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		switch grpcstatus.Code(err) {
		case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
			status = apierrors.NewServiceUnavailable("the launcher does not answer: " + Words(err))
		case codes.Internal:
			status = apierrors.NewInternalError(errors.New(Words(err)))
		default:
			status = apierrors.NewConflict(resource, vmi.Name, errors.New(Words(err)))
		}
	}
	return status.Status()
}

// maxWords bounds what a launcher can put into an answer, a status, events and logs, bytes.
const maxWords = 1 << 10

// Words returns an error's text for users, without gRPC's decoration. It may be a launcher's, which a guest may have
// taken over, or the guest agent's, so it is one printable line of bounded length.
func Words(err error) string {
	text := err.Error()
	if s, ok := grpcstatus.FromError(err); ok {
		text = s.Message()
	}
	text = strings.ToValidUTF8(text[:min(len(text), maxWords)], "")
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
}

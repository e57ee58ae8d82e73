package streams

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/stream"
)

// usbPorts are the USB redirections of a node's guests that are in use, by pod. A socket of QEMU's takes one client at
// a time, and another would wait in its queue without a word.
type usbPorts struct {
	mu   sync.Mutex
	used map[types.UID][names.USBRedirections]bool
}

// take takes a free port and returns it.
func (u *usbPorts) take(pod types.UID) (int, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	used := u.used[pod]
	for n := range used {
		if !used[n] {
			used[n] = true
			u.used[pod] = used
			return n, true
		}
	}
	return 0, false
}

func (u *usbPorts) free(pod types.UID, n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	used := u.used[pod]
	used[n] = false
	if used == [names.USBRedirections]bool{} {
		delete(u.used, pod)
		return
	}
	u.used[pod] = used
}

// usbRedir joins a websocket and a port of the guest to which a USB device of the client's is redirected.
func (s *Server) usbRedir(w http.ResponseWriter, r *http.Request) {
	run, pod, err := s.open(w, r)
	if err != nil {
		return
	}
	defer run.Close()
	port, ok := s.usb.take(pod)
	if !ok {
		refuse(w, name(r), apierrors.NewServiceUnavailable(fmt.Sprintf(
			"all %d USB redirections of VirtualMachineInstance %s are in use; end one of them",
			names.USBRedirections, name(r))))
		return
	}
	defer s.usb.free(pod, port)
	device, err := run.Dial(r.Context(), names.SocketUSB+strconv.Itoa(port)+names.SuffixUSB)
	if err != nil {
		if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED) {
			err = errors.New("the guest takes no USB devices: it does not run, or " +
				"spec.domain.devices.clientPassthrough is not set")
		}
		refuse(w, name(r), err)
		return
	}
	defer device.Close()
	s.active.Add(1)
	defer s.active.Done()
	conn, err := stream.Accept(w, r, stream.Options{})
	if err != nil {
		return // answered
	}
	if err := stream.Splice(s.ctx, conn, s.leavingConn(device, pod)); err != nil {
		s.Log.Debug("USB redirection ended", "vmi", name(r).String(), "port", port, "err", err)
	}
}

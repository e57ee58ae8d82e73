package ssh

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/virtkit/virtkit/pkg/client/action"
)

// broken is a connection to a guest that goes away amid the login.
type broken struct {
	net.Conn
	err error
}

func (b broken) Read([]byte) (int, error) { return 0, b.err }

// A guest that is restarted amid a login is a connection that was lost, in one sentence without addresses of the
// cluster.
func TestLoginIsLost(t *testing.T) {
	address := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 2), Port: 22}
	reset := &net.OpError{
		Op: "read", Net: "tcp", Source: address, Addr: address, Err: os.NewSyscallError("read", syscall.ECONNRESET),
	}
	for why, err := range map[string]error{"connection reset by peer": reset, "the guest has closed it": io.EOF} {
		here, there := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, there) }() // until Connect has closed its end
		_, got := Connect(t.Context(), broken{here, err}, Login{
			User: "root", Host: "vm.demo.default", Port: 22, Keys: HostKeys{Checking: Unchecked},
		})
		want := "log in to vm.demo.default: the connection was lost before the login: " + why + "; it may be restarting"
		if !errors.Is(got, action.ErrLost) || !strings.HasPrefix(got.Error(), want) ||
			strings.Contains(got.Error(), "10.0.0.2") {
			t.Errorf("%v\nwant %s", got, want)
		}
	}
}

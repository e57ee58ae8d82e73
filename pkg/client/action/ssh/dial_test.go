package ssh

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/forward"
	"github.com/virtkit/virtkit/pkg/stream"
)

// silent is a server that waits for a guest longer than the user does.
type silent struct{}

func (silent) PortForward(ctx context.Context, _, _, _ string, _ uint16, _ string) (*stream.Conn, error) {
	<-ctx.Done()
	return nil, &net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}
}

// A guest that does not answer is not taken for a cluster that does not.
func TestDialSilentGuest(t *testing.T) {
	_, err := Dial(t.Context(), silent{}, forward.Target{Namespace: "shop", Name: "demo"}, 22, time.Millisecond,
		func(error) {})
	var network *net.OpError
	if !errors.Is(err, action.ErrTimeout) || errors.As(err, &network) ||
		!strings.Contains(err.Error(), "does not answer on port 22") {
		t.Errorf("%v", err)
	}
}

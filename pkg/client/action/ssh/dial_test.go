package ssh

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// late is a context whose deadline is reached before it ends.
type late struct {
	context.Context
	at time.Time
}

func (l late) Deadline() (time.Time, bool) { return l.at, true }

// refuses is a guest on whose port nothing listens. The connection to the cluster meets the deadline of the second try.
type refuses struct{ tries int }

func (r *refuses) PortForward(ctx context.Context, _, _, _ string, _ uint16, _ string) (*stream.Conn, error) {
	if r.tries++; r.tries == 1 {
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
			Code: 503, Reason: stream.ReasonPortRefused, Message: "nothing listens",
		}}
	}
	deadline, _ := ctx.Deadline()
	time.Sleep(time.Until(deadline))
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}
}

// What was wrong till the deadline is said, not that the last try met it.
func TestDialUntilTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := Dial(late{ctx, time.Now().Add(pause + 100*time.Millisecond)}, &refuses{},
			forward.Target{Namespace: "shop", Name: "demo"}, 22, time.Hour, func(error) {})
		if !errors.Is(err, action.ErrTimeout) || !strings.HasSuffix(err.Error(), "nothing listens") {
			t.Error(err)
		}
	})
}

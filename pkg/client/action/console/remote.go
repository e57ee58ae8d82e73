package console

import (
	"context"
	"io"
	"net/url"
	"strconv"

	"github.com/virtkit/virtkit/pkg/client/action/wait"
	"github.com/virtkit/virtkit/pkg/stream"
)

// API has the methods of a *client.Client that a Remote calls.
type API interface {
	wait.API
	Console(ctx context.Context, namespace, name string, query url.Values) (*stream.Conn, error)
}

// Remote is the serial console of a virtual machine.
type Remote struct {
	API             API
	Namespace, Name string
	// Join attaches beside others instead of taking over from them.
	Join bool
	// Tail is how much of what the guest has written before comes first, bytes.
	Tail uint32
	// Blocked, which may be nil, is called when a VM that is waited for cannot start, with why.
	Blocked func(why string)
}

// Connect opens the console, waiting for the guest to run for as long as ctx lasts. A VM that is stopped is an
// ErrStopped, unless again says that a session is to be taken up once more. waiting is called when there is something
// to wait for.
func (r *Remote) Connect(ctx context.Context, again bool, waiting func()) (io.ReadWriteCloser, error) {
	query := url.Values{}
	if r.Join {
		query.Set("join", "true")
	}
	if r.Tail > 0 {
		query.Set("tail", strconv.FormatUint(uint64(r.Tail), 10))
	}
	dial := func(ctx context.Context) (io.ReadWriteCloser, error) {
		conn, err := r.API.Console(ctx, r.Namespace, r.Name, query)
		if err != nil {
			return nil, err
		}
		return conn, nil
	}
	return connect(ctx, r.API, dial, r.Namespace, r.Name, again, waiting, r.Blocked)
}

package lifecyclecmd

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/rename"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// Who interrupts a rename that has begun is told how to go on; one that has not, and one that failed, say nothing more.
func TestInterruptedRename(t *testing.T) {
	request := rename.Request{Namespace: "ns", Name: "web", To: "shop"}
	unfinished := func(err error) error {
		return &rename.UnfinishedError{Request: request, Last: rename.Wait, Err: err}
	}
	const line = "interrupted: rename of VM ns/web has begun; `kubectl virt rename web shop -n ns` goes on\n"
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"begun":     {unfinished(context.Canceled), line},
		"not begun": {context.Canceled, ""},
		"too slow":  {unfinished(action.ErrTimeout), ""},
		"failed":    {unfinished(errors.New("refused")), ""},
	} {
		var out bytes.Buffer
		streams := cli.NoStreams()
		streams.ErrOut = &out
		o := &RenameOptions{
			Factory: cli.NewFactory("kubectl virt", streams, func(string) string { return "" }), Request: request,
		}
		if err := o.exit(test.err); !errors.Is(err, test.err) {
			t.Errorf("%s: the error is %v", name, err)
		}
		if out.String() != test.want {
			t.Errorf("%s: said %q, want %q", name, out.String(), test.want)
		}
	}
}

package logscmd

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/logs"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// several copies the logs of machines, each line with the machine's name before it: one log after the other, with
// --follow all at the same time. It goes on after a failure and returns all errors. plain is whether what a terminal
// would obey is left out.
func (o *Options) several(
	ctx context.Context, c *client.Client, targets []cli.Target, reading logs.Options, out io.Writer, plain bool,
) error {
	for i := range targets {
		targets[i].Instance = false // a VM and its instance have one log
	}
	targets = unique(targets)
	mixed := slices.ContainsFunc(targets, func(t cli.Target) bool { return t.Namespace != targets[0].Namespace })
	shared := &lines{w: out}
	errs := make([]error, len(targets))
	var group sync.WaitGroup
	for i, t := range targets {
		name := t.Name
		if mixed {
			name = t.Namespace + "/" + name
		}
		one := func() {
			own := &prefixed{lines: shared, prefix: "[" + name + "] "}
			var w io.Writer = own
			if plain {
				w = cli.Plain(own)
			}
			err := o.copy(ctx, c, t, reading, w)
			if flushed := own.flush(); err == nil {
				err = flushed
			}
			errs[i] = err
			if err != nil && reading.Follow && ctx.Err() == nil && len(targets) > 1 && o.Factory.IO.ErrIsTTY {
				fmt.Fprintf(o.Factory.IO.ErrOut, "%s: %v; the others go on\n", name, err)
			}
		}
		if reading.Follow {
			group.Go(one)
		} else {
			one()
		}
	}
	group.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return utilerrors.NewAggregate(errs)
}

func unique(targets []cli.Target) []cli.Target {
	var out []cli.Target
	for _, t := range targets {
		if !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}

// longest is how much of a line without an end is kept, bytes, before it is written as one.
const longest = 64 << 10

// lines is where the lines of several logs go, one at a time.
type lines struct {
	mu sync.Mutex
	w  io.Writer
}

// prefixed writes whole lines with a prefix.
type prefixed struct {
	lines  *lines
	prefix string
	rest   []byte
}

// Write implements io.Writer. The line that has not ended is kept for flush.
func (p *prefixed) Write(data []byte) (int, error) {
	p.rest = append(p.rest, data...)
	var text []byte
	for {
		end := bytes.IndexByte(p.rest, '\n') + 1
		if end == 0 {
			break
		}
		text = append(append(text, p.prefix...), p.rest[:end]...)
		p.rest = p.rest[end:]
	}
	p.rest = bytes.Clone(p.rest)
	if err := p.put(text); err != nil {
		return 0, err
	}
	if len(p.rest) >= longest {
		return len(data), p.flush()
	}
	return len(data), nil
}

// flush ends the last line.
func (p *prefixed) flush() error {
	if len(p.rest) == 0 {
		return nil
	}
	text := append(append([]byte(p.prefix), p.rest...), '\n')
	p.rest = nil
	return p.put(text)
}

func (p *prefixed) put(text []byte) error {
	p.lines.mu.Lock()
	defer p.lines.mu.Unlock()
	_, err := p.lines.w.Write(text)
	return err
}

package lifecyclecmd

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/journal"
	"github.com/virtkit/virtkit/pkg/client/action/lifecycle"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

func journalOf(f *cli.Factory) (journal.File, error) {
	dir, err := cli.StateDir(f.Getenv)
	return journal.File{Path: filepath.Join(dir, "journal.jsonl")}, err
}

// remember notes what must be known of a machine for its verb to be taken back. Who may not read it cannot
// take it back, which is no reason to refuse the verb.
func remember(ctx context.Context, c *client.Client, verb lifecycle.Verb, t lifecycle.Target, b *before) {
	if verb.OnInstance() || t.Instance {
		if b.vmi == nil {
			if vmi, err := c.VMI(ctx, t.Namespace, t.Name); err == nil {
				b.vmi = vmi
			}
		}
		return
	}
	if b.vm == nil {
		if vm, err := c.VM(ctx, t.Namespace, t.Name); err == nil {
			b.vm = vm
		}
	}
}

// record writes the requests that were accepted into the journal. undoes is the entry that they take back, if any. It
// is a convenience: where it cannot be written the user is told, and what was asked stands.
func (o *Options) record(requests []*request, undoes string) {
	if o.DryRun != cli.DryRunNone {
		return
	}
	connection := o.Factory.Connection()
	entry := journal.Entry{
		Time: o.Factory.Now().UTC(), Server: connection.Server, Context: connection.Context, Verb: o.Verb,
		Undoes: undoes,
	}
	for _, r := range requests {
		if !r.accepted {
			continue
		}
		m := journal.Machine{
			Namespace: r.target.Namespace, Name: r.target.Name, Instance: r.target.Instance,
			InstanceUID: r.before.instance(),
		}
		if vm := r.before.vm; vm != nil {
			m.UID = vm.UID
			if strategy, err := vm.RunStrategy(); err == nil {
				m.Before = strategy
			}
		}
		entry.Machines = append(entry.Machines, m)
	}
	if len(entry.Machines) == 0 {
		return
	}
	file, err := journalOf(o.Factory)
	if err == nil {
		err = file.Append(entry)
	}
	if err != nil && o.Factory.IO.ErrIsTTY {
		fmt.Fprintf(o.Factory.IO.ErrOut, "warning: it cannot be undone: %v\n", err)
	}
}

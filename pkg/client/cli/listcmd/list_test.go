package listcmd

import (
	"bytes"
	"testing"
	"time"

	"github.com/virtkit/virtkit/pkg/client/action/list"
	"github.com/virtkit/virtkit/pkg/client/cli"
)

// The columns of a watch stand under each other from the first line on, and later lines keep to them.
func TestWatchedTable(t *testing.T) {
	out := &bytes.Buffer{}
	now := time.Unix(1000, 0)
	o := &Options{
		Factory: &cli.Factory{IO: &cli.IOStreams{Out: out}, Now: func() time.Time { return now }},
		Output:  cli.NewOutput(), Watch: true,
	}
	table := &table{o: o}
	row := func(name, status string) list.Row {
		return list.Row{Name: name, Status: status, Created: now.Add(-time.Minute)}
	}
	for _, rows := range [][]list.Row{{row("a", "Running"), row("b", "ImagePullBackOff")}, {row("a", "Stopping")}} {
		if err := table.print(rows); err != nil {
			t.Fatal(err)
		}
	}
	want := `NAME         STATUS             READY        NODE         IP           AGE
a            Running            False        <none>       <none>       60s
b            ImagePullBackOff   False        <none>       <none>       60s
a            Stopping           False        <none>       <none>       60s
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
}

package installcmd

import (
	"fmt"

	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/printable"
)

// progress shows the current step on a terminal's last line, and nothing where there is no terminal.
type progress struct {
	io *cli.IOStreams
}

func newProgress(io *cli.IOStreams) progress { return progress{io} }

const eraseLine = "\r\x1b[K"

func (p progress) step(text string) {
	if !p.io.ErrIsTTY {
		return
	}
	text = printable.Line(text)
	if width := p.io.Width(); width > 1 && len(text) >= width {
		text = text[:width-1]
	}
	fmt.Fprint(p.io.RawErr(), eraseLine+text)
}

func (p progress) end() {
	if p.io.ErrIsTTY {
		fmt.Fprint(p.io.RawErr(), eraseLine)
	}
}

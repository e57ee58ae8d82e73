package cli

import "io"

// Plain writes to w without what a terminal would obey: escape sequences and control characters other than tab and
// newline. What a guest prints must not be able to retitle, recolour or query the user's terminal. Bytes above 127
// pass.
func Plain(w io.Writer) io.Writer { return &plain{w: w} }

type plain struct {
	w     io.Writer
	state plainState
}

type plainState int

const (
	text plainState = iota
	// escape follows ESC, sequence is a CSI (ESC [ … letter), command an OSC, DCS, APC, PM or SOS up to BEL or ESC \.
	escape
	sequence
	command
	commandEscape
)

const esc, bel = 0x1b, 0x07

// Write implements io.Writer.
func (p *plain) Write(data []byte) (int, error) {
	out := make([]byte, 0, len(data))
	for _, b := range data {
		switch p.state {
		case text:
			switch {
			case b == esc:
				p.state = escape
			case b >= ' ' && b != 0x7f, b == '\n', b == '\t':
				out = append(out, b)
			}
		case escape:
			switch {
			case b == '[':
				p.state = sequence
			case b == ']' || b == 'P' || b == '_' || b == '^' || b == 'X':
				p.state = command
			case b >= 0x20 && b <= 0x2f: // an intermediate byte: ESC ( B
			default:
				p.state = text
			}
		case sequence:
			if b >= 0x40 && b <= 0x7e || b == '\n' {
				p.state = text
			}
		case command:
			switch b {
			case bel, '\n':
				p.state = text
			case esc:
				p.state = commandEscape
			}
		case commandEscape:
			p.state = text
		}
	}
	if _, err := p.w.Write(out); err != nil {
		return 0, err
	}
	return len(data), nil
}

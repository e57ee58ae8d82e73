package vnccmd

import (
	"errors"
	"fmt"
	"image"
	"strings"
	"testing"

	"github.com/virtkit/virtkit/pkg/client/tui/input"
	"github.com/virtkit/virtkit/pkg/client/tui/screen"
)

// keyLog writes down what it gets.
type keyLog struct {
	said     []string
	relative bool
}

func (k *keyLog) Key(sym uint32, down bool) error {
	sign := "-"
	if down {
		sign = "+"
	}
	k.said = append(k.said, fmt.Sprintf("%s%x", sign, sym))
	return nil
}

func (k *keyLog) Pointer(x, y int, buttons byte) error {
	k.said = append(k.said, fmt.Sprintf("%d,%d:%d", x, y, buttons))
	return nil
}

func (k *keyLog) Relative() bool { return k.relative }

func TestTypist(t *testing.T) {
	layout := screen.Layout{Cells: image.Rect(10, 0, 20, 10)}
	size := image.Pt(100, 200)
	for sent, want := range map[string]string{
		"a":             "+61 -61",
		"A":             "+ffe1 +41 -41 -ffe1",
		"!":             "+ffe1 +21 -21 -ffe1",
		"é€":            "+e9 -e9 +10020ac -10020ac",
		"\r\t":          "+ff0d -ff0d +ff09 -ff09",
		"\x03":          "+ffe3 +63 -63 -ffe3",
		"\x1bOP\x1b[A":  "+ffbe -ffbe +ff52 -ff52",
		"\x1b[1;6D":     "+ffe3 +ffe1 +ff51 -ff51 -ffe1 -ffe3",
		"\x1b[1;7F":     "+ffe3 +ffe9 +ffff -ffff -ffe9 -ffe3",
		"\x1bx":         "+ffe9 +78 -78 -ffe9",
		"\x1b[97;9u":    "+ffeb +61 -61 -ffeb",
		"\x1b[<0;11;1M": "5,10:1",
		"\x1b[<0;11;1M\x1b[<32;12;1M\x1b[<0;12;1m": "5,10:1 15,10:1 15,10:0",
		"\x1b[<64;20;10M":                          "95,190:8 95,190:0",
		"\x1b[<0;1;1M":                             "", // beside the picture
		"\x1b[200~Hi\r\x1b[201~":                   "+ffe1 +48 -48 -ffe1 +69 -69 +ff0d -ff0d",
		"x\x1d":                                    "+78 -78 left",
		"\x1b[93;5u":                               "left",
	} {
		log := &keyLog{}
		typist := &typist{to: log}
		var d input.Decoder
		for _, e := range d.Decode([]byte(sent)) {
			if err := typist.handle(e, layout, size); errors.Is(err, errLeft) {
				log.said = append(log.said, "left")
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if got := strings.Join(log.said, " "); got != want {
			t.Errorf("%q: %s, want %s", sent, got, want)
		}
	}

	log := &keyLog{relative: true}
	typist := &typist{to: log, at: image.Pt(5, 10)}
	if err := typist.handle(input.Event{Mouse: true, Column: 11, Row: 1, Motion: true}, layout, size); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(log.said, " "); got != fmt.Sprintf("%d,%d:0", relativeBase+10, relativeBase+20) {
		t.Errorf("a mouse that knows distances: %s", got)
	}
}

func TestStatusLine(t *testing.T) {
	if got := statusLine("default/demo", image.Pt(720, 400),
		20, 5); got != "\x1b[5;1H\x1b[0;7m Ctrl-] leaves  Ctrl\x1b[0m" {
		t.Errorf("%q", got)
	}
	if got := statusLine("default/demo", image.Pt(720, 400), 100, 5); !strings.Contains(got,
		"default/demo  720×400   ") {
		t.Errorf("%q", got)
	}
}

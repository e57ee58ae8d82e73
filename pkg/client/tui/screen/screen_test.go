package screen

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"image"
	"image/color"
	"io"
	"regexp"
	"strings"
	"testing"
)

func picture(width, height int, at func(x, y int) color.RGBA) *image.RGBA {
	p := image.NewRGBA(image.Rect(0, 0, width, height))
	for y := range height {
		for x := range width {
			p.SetRGBA(x, y, at(x, y))
		}
	}
	return p
}

var (
	red   = color.RGBA{255, 0, 0, 255}
	green = color.RGBA{0, 255, 0, 255}
	black = color.RGBA{0, 0, 0, 255}
)

func TestFit(t *testing.T) {
	for _, test := range []struct {
		w    Window
		p    image.Point
		want image.Rectangle
	}{
		{Window{80, 25, 1, 2}, image.Pt(80, 48), image.Rect(0, 0, 80, 24)},
		{Window{80, 25, 1, 2}, image.Pt(160, 48), image.Rect(0, 6, 80, 18)},
		{Window{80, 25, 8, 16}, image.Pt(100, 100), image.Rect(16, 0, 64, 24)},
		{Window{1, 1, 8, 16}, image.Pt(100, 100), image.Rect(0, 0, 1, 1)},
		{Window{80, 25, 8, 16}, image.Pt(0, 100), image.Rectangle{}},
		{Window{80, 25, 8, 16}, image.Pt(16384, 1), image.Rect(0, 11, 80, 12)},
	} {
		l := Fit(test.w, test.p, 1)
		if l.Cells != test.want {
			t.Errorf("%v in %v: %v, want %v", test.p, test.w, l.Cells, test.want)
		}
	}
	l := Fit(Window{80, 25, 8, 16}, image.Pt(100, 100), 1)
	if p, on := l.At(16, 0, image.Pt(100, 100)); !on || p != image.Pt(1, 2) {
		t.Errorf("the first cell is %v %v", p, on)
	}
	if p, on := l.At(63, 23, image.Pt(100, 100)); !on || p != image.Pt(98, 97) {
		t.Errorf("the last cell is %v %v", p, on)
	}
	if _, on := l.At(64, 0, image.Pt(100, 100)); on {
		t.Error("a cell beside the picture is on it")
	}
}

func TestBlocks(t *testing.T) {
	p := picture(2, 2, func(x, y int) color.RGBA {
		if y == 0 {
			return red
		}
		return green
	})
	layout := Layout{Cells: image.Rect(3, 4, 5, 5), Size: image.Pt(2, 2)}
	b := New(Blocks, true)
	paint := func() string {
		var out bytes.Buffer
		b.Paint(&out, p, layout)
		return out.String()
	}
	if got := paint(); got != "\x1b[5;4H\x1b[38;2;255;0;0m\x1b[48;2;0;255;0m▀▀\x1b[0m" {
		t.Errorf("%q", got)
	}
	if got := paint(); got != "" {
		t.Errorf("what is there is drawn again: %q", got)
	}
	p.SetRGBA(1, 1, black)
	if got := paint(); got != "\x1b[5;5H\x1b[38;2;255;0;0m\x1b[48;2;0;0;0m▀\x1b[0m" {
		t.Errorf("%q", got)
	}
	b.Forget()
	if got := paint(); strings.Count(got, "▀") != 2 {
		t.Errorf("%q", got)
	}
	b = New(Blocks, false)
	if got := paint(); !strings.Contains(got, "\x1b[38;5;196m\x1b[48;5;46m▀") {
		t.Errorf("%q", got)
	}
}

func TestIndex256(t *testing.T) {
	for c, want := range map[rgb]int{
		{0, 0, 0}:       16,
		{255, 255, 255}: 231,
		{128, 128, 128}: 244,
		{170, 170, 170}: 248,
		{95, 135, 255}:  69,
	} {
		if got := index256(c); got != want {
			t.Errorf("%v is %d, want %d", c, got, want)
		}
	}
}

func TestKitty(t *testing.T) {
	noise := uint32(1)
	p := picture(100, 60, func(int, int) color.RGBA {
		noise = noise*1664525 + 1013904223
		return color.RGBA{byte(noise >> 8), byte(noise >> 16), byte(noise >> 24), 255}
	})
	layout := Fit(Window{80, 25, 8, 16}, p.Rect.Size(), 1)
	k := New(Kitty, true)
	for _, want := range []string{"i=1,", "i=2,"} {
		var out bytes.Buffer
		k.Paint(&out, p, layout)
		chunks := regexp.MustCompile(`\x1b_G([^;]*);([^\x1b]*)\x1b\\`).FindAllStringSubmatch(out.String(), -1)
		if len(chunks) < 2 || !strings.Contains(chunks[0][1], want) || !strings.Contains(chunks[0][1], "s=100,v=60") {
			t.Fatalf("%d chunks, the first %q", len(chunks), chunks[0][1])
		}
		data := ""
		for i, c := range chunks {
			data += c[2]
			if last := i == len(chunks)-1; strings.HasSuffix(c[1], "m=0") != last || len(c[2]) > kittyChunk {
				t.Errorf("chunk %d: %s", i, c[1])
			}
		}
		compressed, err := base64.StdEncoding.DecodeString(data)
		if err != nil {
			t.Fatal(err)
		}
		z, err := zlib.NewReader(bytes.NewReader(compressed))
		if err != nil {
			t.Fatal(err)
		}
		pixels, err := io.ReadAll(z)
		if err != nil || len(pixels) != 100*60*3 || !bytes.Equal(pixels[:3], p.Pix[:3]) {
			t.Errorf("%d bytes of pixels, %v", len(pixels), err)
		}
	}
	var out bytes.Buffer
	k.Paint(&out, p, layout)
	if !strings.HasSuffix(out.String(), "\x1b_Ga=d,d=I,i=2,q=2\x1b\\") {
		t.Error("the picture before stays")
	}
}

func TestSixel(t *testing.T) {
	p := picture(6, 7, func(x, y int) color.RGBA {
		if x < 5 && y < 6 {
			return red
		}
		return green
	})
	var out bytes.Buffer
	writeSixel(&out, p)
	want := "\x1bP0;1q\"1;1;6;7#0;2;100;0;0#1;2;0;100;0" + "#0!5~$#1!5?~-" + "#1!6@-" + "\x1b\\"
	if out.String() != want {
		t.Errorf("\n got %q\nwant %q", out.String(), want)
	}
	// More colours than there are.
	many := picture(64, 64, func(x, y int) color.RGBA { return color.RGBA{byte(4 * x), byte(4 * y), 0, 255} })
	colours, of := reduce(many)
	if len(colours) != 252 || colours[of[0]] != (rgb{}) || colours[of[63*64+63]] != (rgb{255, 255, 0}) {
		t.Errorf("%d colours", len(colours))
	}
	s := New(Sixel, true)
	layout := Fit(Window{80, 25, 8, 16}, p.Rect.Size(), 1)
	var first, second bytes.Buffer
	s.Paint(&first, p, layout)
	s.Paint(&second, p, layout)
	if first.Len() == 0 || second.Len() != 0 {
		t.Errorf("%d bytes, then %d", first.Len(), second.Len())
	}
}

func TestScale(t *testing.T) {
	p := picture(4, 2, func(x, _ int) color.RGBA {
		if x%2 == 0 {
			return color.RGBA{200, 0, 0, 255}
		}
		return color.RGBA{0, 100, 0, 255}
	})
	if got := scale(p, image.Pt(2, 1)).RGBAAt(1, 0); got != (color.RGBA{100, 50, 0, 255}) {
		t.Errorf("half the size: %v", got)
	}
	if got := scale(p, image.Pt(8, 4)).RGBAAt(3, 3); got != (color.RGBA{0, 100, 0, 255}) {
		t.Errorf("twice the size: %v", got)
	}
}

func TestAnswers(t *testing.T) {
	for sent, want := range map[string]Answers{
		"": {},
		"\x1b_Gi=31;OK\x1b\\\x1b[?0u\x1b[6;18;9t\x1b[4;450;720t\x1b[?62;c": {
			Complete: true, Graphics: true, Keyboard: true, CellWidth: 9, CellHeight: 18, WindowWidth: 720,
			WindowHeight: 450,
		},
		"\x1b[?64;1;4;22c":                {Complete: true, Sixels: true},
		"\x1b_Gi=31;ENOSYS\x1b\\\x1b[?6c": {Complete: true},
		"\x1b[6;99999999;1t\x1b[?44c":     {Complete: true},
	} {
		if got := ReadAnswers([]byte(sent)); got != want {
			t.Errorf("%q: %+v", sent, got)
		}
	}
	for want, a := range map[Kind]Answers{Kitty: {Graphics: true, Sixels: true}, Sixel: {Sixels: true}, Blocks: {}} {
		if got := a.Best(); got != want {
			t.Errorf("%+v: %s", a, got)
		}
	}
	if w := (Answers{WindowWidth: 800, WindowHeight: 480}).Window(Kitty, 80, 24); w != (Window{80, 24, 10, 20}) {
		t.Errorf("%+v", w)
	}
	if w := (Answers{CellWidth: 9, CellHeight: 18}).Window(Blocks, 80, 24); w != (Window{80, 24, 1, 2}) {
		t.Errorf("%+v", w)
	}
	if w := (Answers{}).Window(Sixel, 80, 24); w != (Window{80, 24, 6, 12}) {
		t.Errorf("%+v", w)
	}
}

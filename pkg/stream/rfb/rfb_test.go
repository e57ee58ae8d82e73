package rfb

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"image"
	"image/color"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/virtkit/virtkit/pkg/stream/rfb/rfbtest"
)

// wire is a server's side of a conversation, written beforehand.
type wire struct {
	io.Reader
	sent bytes.Buffer
}

func (w *wire) Write(p []byte) (int, error) { return w.sent.Write(p) }

func hello(width, height uint16) []byte {
	b := []byte(version + "\x01\x01\x00\x00\x00\x00")
	b = binary.BigEndian.AppendUint16(b, width)
	b = binary.BigEndian.AppendUint16(b, height)
	b = append(b, make([]byte, 16)...)
	return append(b, 0, 0, 0, 2, 'h', 'i')
}

type rectangle struct {
	x, y, w, h uint16
	encoding   int32
	data       []byte
}

func updateOf(rectangles ...rectangle) []byte {
	b := []byte{0, 0, 0, byte(len(rectangles))}
	for _, r := range rectangles {
		for _, v := range []uint16{r.x, r.y, r.w, r.h} {
			b = binary.BigEndian.AppendUint16(b, v)
		}
		b = binary.BigEndian.AppendUint32(b, uint32(r.encoding))
		b = append(b, r.data...)
	}
	return b
}

func open(t testing.TB, parts ...[]byte) *Conn {
	t.Helper()
	c, err := Open(&wire{Reader: bytes.NewReader(slices.Concat(append([][]byte{hello(20, 20)}, parts...)...))}, true)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func at(c *Conn, x, y int) color.RGBA { return c.screen.RGBAAt(x, y) }

var (
	red   = color.RGBA{255, 0, 0, 255}
	green = color.RGBA{0, 255, 0, 255}
	blue  = color.RGBA{0, 0, 255, 255}
	black = color.RGBA{0, 0, 0, 255}
)

func TestRefusals(t *testing.T) {
	for want, server := range map[string]string{
		"begins with":      "SSH-2.0-x1\r\n",
		"3.8 or newer":     "RFB 003.003\n",
		`"go away"`:        version + "\x00\x00\x00\x00\x07go away",
		"password":         version + "\x01\x02",
		`"no more"`:        version + "\x01\x01\x00\x00\x00\x01\x00\x00\x00\x07no more",
		"4294967295 bytes": version + "\x00\xff\xff\xff\xff",
		"65535×65535":      version + "\x01\x01\x00\x00\x00\x00\xff\xff\xff\xff" + strings.Repeat("\x00", 20),
		io.EOF.Error():     "",
		"unexpected EOF":   "RFB",
		"a name of 4294967295": version + "\x01\x01\x00\x00\x00\x00\x00\x01\x00\x01" + strings.Repeat("\x00", 16) +
			"\xff\xff\xff\xff",
	} {
		_, err := Open(&wire{Reader: strings.NewReader(server)}, true)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", server, err, want)
		}
	}
}

func TestRawAndCopy(t *testing.T) {
	c := open(t, updateOf(
		rectangle{1, 2, 2, 1, encodingRaw, []byte{255, 0, 0, 9, 0, 255, 0, 9}},
		rectangle{2, 2, 2, 1, encodingCopyRect, []byte{0, 1, 0, 2}}, // overlaps
	))
	if c.Name != "hi" {
		t.Errorf("name %q", c.Name)
	}
	u, err := c.Next()
	if err != nil || u.Changed != image.Rect(1, 2, 4, 3) {
		t.Fatalf("%v %v", u, err)
	}
	for x, want := range map[int]color.RGBA{0: black, 1: red, 2: red, 3: green, 4: black} {
		if got := at(c, x, 2); got != want {
			t.Errorf("pixel %d is %v, want %v", x, got, want)
		}
	}
}

func TestHextile(t *testing.T) {
	data := []byte{
		// background red, foreground green, one rectangle at 1,0 of 2×1
		2 | 4 | 8, 255, 0, 0, 0, 0, 255, 0, 0, 1, 0x10, 0x10,
		8 | 16, 1, 0, 0, 255, 0, 0x33, 0xff, // as before, a blue rectangle that reaches beyond the tile
	}
	c := open(t, updateOf(rectangle{0, 0, 20, 5, encodingHextile, data}))
	if _, err := c.Next(); err != nil {
		t.Fatal(err)
	}
	for p, want := range map[image.Point]color.RGBA{
		{X: 0, Y: 0}:  red,
		{X: 1, Y: 0}:  green,
		{X: 2, Y: 0}:  green,
		{X: 3, Y: 0}:  red,
		{X: 19, Y: 3}: blue,
		{X: 18, Y: 3}: red,
		{X: 19, Y: 6}: black,
	} {
		if got := at(c, p.X, p.Y); got != want {
			t.Errorf("%v is %v, want %v", p, got, want)
		}
	}
}

// zrle compresses tiles in one stream that is flushed after each.
type zrle struct {
	out bytes.Buffer
	z   *zlib.Writer
}

func (z *zrle) rectangle(t testing.TB, data ...byte) []byte {
	if z.z == nil {
		z.z = zlib.NewWriter(&z.out)
	}
	z.out.Reset()
	if _, err := z.z.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := z.z.Flush(); err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(z.out.Len())), z.out.Bytes()...)
}

func TestZRLE(t *testing.T) {
	var z *zrle
	type tile struct {
		name string
		data []byte
		want string // rows of colours
	}
	for _, test := range []tile{
		{"raw", []byte{0, 255, 0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0}, "rg b."},
		{"solid", []byte{1, 0, 255, 0}, "gg gg"},
		{"packed", []byte{2, 255, 0, 0, 0, 0, 255, 0x40, 0x80}, "rb br"},
		{"packed of 3", []byte{3, 255, 0, 0, 0, 255, 0, 0, 0, 255, 0x60, 0x80}, "gb br"},
		{"runs", []byte{128, 255, 0, 0, 2, 0, 255, 0, 0}, "rr rg"},
		{"palette runs", []byte{130, 255, 0, 0, 0, 0, 255, 1, 128, 2}, "br rr"},
	} {
		c := open(t)
		c.zrle.pixels = nil
		z = &zrle{}
		// Twice, as the stream goes on.
		for range 2 {
			data := z.rectangle(t, test.data...)
			c.in.Reset(bytes.NewReader(updateOf(rectangle{3, 3, 2, 2, encodingZRLE, data})))
			if _, err := c.Next(); err != nil {
				t.Fatalf("%s: %v", test.name, err)
			}
		}
		for y, row := range strings.Fields(test.want) {
			for x, want := range row {
				got := at(c, 3+x, 3+y)
				if got != map[rune]color.RGBA{'r': red, 'g': green, 'b': blue, '.': black}[want] {
					t.Errorf("%s: %d,%d is %v, want %c", test.name, x, y, got, want)
				}
			}
		}
	}
}

func TestHostileUpdates(t *testing.T) {
	z := func(data ...byte) []byte { return (&zrle{}).rectangle(t, data...) }
	for name, message := range map[string][]byte{
		"outside":          updateOf(rectangle{15, 0, 10, 1, encodingRaw, make([]byte, 40)}),
		"copy of outside":  updateOf(rectangle{0, 0, 10, 10, encodingCopyRect, []byte{0, 15, 0, 15}}),
		"unknown encoding": updateOf(rectangle{0, 0, 1, 1, 7, nil}),
		"unknown message":  {99},
		"huge screen":      updateOf(rectangle{0, 0, 65535, 65535, encodingDesktopSize, nil}),
		"huge clipboard":   {3, 0, 0, 0, 255, 255, 255, 255},
		"huge zrle":        updateOf(rectangle{0, 0, 1, 1, encodingZRLE, []byte{255, 255, 255, 255}}),
		"not zlib":         updateOf(rectangle{0, 0, 1, 1, encodingZRLE, []byte{0, 0, 0, 4, 1, 2, 3, 4}}),
		"short zrle":       updateOf(rectangle{0, 0, 20, 20, encodingZRLE, z(0, 1, 2, 3)}),
		"endless run":      updateOf(rectangle{0, 0, 2, 2, encodingZRLE, z(128, 1, 2, 3, 255, 255, 255)}),
		"colour of none":   updateOf(rectangle{0, 0, 2, 2, encodingZRLE, z(3, 1, 1, 1, 2, 2, 2, 3, 3, 3, 0xff, 0xff)}),
		"run of none":      updateOf(rectangle{0, 0, 2, 2, encodingZRLE, z(130, 1, 1, 1, 2, 2, 2, 2)}),
		"tile of no kind":  updateOf(rectangle{0, 0, 2, 2, encodingZRLE, z(129)}),
	} {
		if _, err := open(t, message).Next(); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, message := range map[string][]byte{
		"cut":     {3, 0, 0, 0, 0, 0, 0, 2, 'h', 'i'},
		"palette": {1, 0, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6},
		"bell":    {2},
	} {
		u, err := open(t, message).Next()
		if err != nil || u.Bell != (name == "bell") {
			t.Errorf("%s: %+v %v", name, u, err)
		}
	}
}

func TestConversation(t *testing.T) {
	screen := image.NewRGBA(image.Rect(0, 0, 30, 10))
	screen.SetRGBA(29, 9, red)
	server := rfbtest.New(screen)
	keys, pointer := make(chan uint32, 4), make(chan [3]int, 4)
	server.Key = func(sym uint32, down bool) {
		if down {
			keys <- sym
		}
	}
	server.Pointer = func(x, y int, buttons byte) { pointer <- [3]int{x, y, int(buttons)} }
	ours, theirs := net.Pipe()
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(theirs); err != nil {
			t.Error(err)
		}
	})
	defer serving.Wait()
	defer ours.Close()
	c, err := Open(ours, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if u, err := c.Next(); err != nil || u.Changed != screen.Rect || at(c, 29, 9) != red {
		t.Fatalf("%+v %v", u, err)
	}
	if err := c.Key('a', true); err != nil {
		t.Fatal(err)
	}
	if err := c.Pointer(7, 8, 1); err != nil {
		t.Fatal(err)
	}
	if k, p := <-keys, <-pointer; k != 'a' || p != [3]int{7, 8, 1} {
		t.Errorf("key %d pointer %v", k, p)
	}
	if err := c.Request(true); err != nil {
		t.Fatal(err)
	}
	server.Show(image.NewRGBA(image.Rect(0, 0, 5, 6)))
	u, err := c.Next()
	if w, h := c.Size(); err != nil || !u.Resized || w != 5 || h != 6 {
		t.Errorf("%+v %v: %d×%d", u, err, w, h)
	}
}

func FuzzServer(f *testing.F) {
	z := func(data ...byte) []byte { return (&zrle{}).rectangle(f, data...) }
	f.Add(append(hello(20, 20),
		updateOf(rectangle{0, 0, 20, 5, encodingHextile, []byte{30, 255, 0, 0, 0, 0, 255, 0, 0, 1, 0x10, 0x10}})...))
	for _, tile := range [][]byte{
		{0, 1, 2, 3},
		{1, 1, 2, 3},
		{2, 1, 2, 3, 4, 5, 6, 0xff, 0xff},
		{128, 1, 2, 3, 3},
		{130, 1, 2, 3, 4, 5, 6, 128, 3},
	} {
		f.Add(append(hello(20, 20),
			updateOf(rectangle{0, 0, 2, 2, encodingZRLE, z(tile...)},
				rectangle{1, 1, 2, 2, encodingCopyRect, make([]byte, 4)})...))
	}
	f.Add(append(hello(20, 20),
		updateOf(rectangle{0, 0, 100, 100, encodingDesktopSize, nil},
			rectangle{0, 0, 0, 0, encodingPointerShape, nil})...))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 28 {
			data[18], data[20] = 0, 0 // a small screen, for speed
		}
		c, err := Open(&wire{Reader: bytes.NewReader(data)}, true)
		for err == nil {
			_, err = c.Next()
			if w, h := c.Size(); w*h > 1<<22 {
				return
			}
		}
	})
}

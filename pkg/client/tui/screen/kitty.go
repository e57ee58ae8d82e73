package screen

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"fmt"
	"image"
)

// kitty sends whole pictures, which the terminal scales. A picture is sent beside the one before and replaces it
// when it is there, so nothing flickers.
type kitty struct {
	current int // 1 or 2; 0 is none
}

// kittyChunk is how much of a picture one sequence may carry, bytes of base64.
const kittyChunk = 4096

func (k *kitty) Forget() {}

func (k *kitty) Clear(out *bytes.Buffer) {
	if k.current != 0 {
		out.WriteString("\x1b_Ga=d,d=A,q=2\x1b\\")
		k.current = 0
	}
}

// Paint sends the picture.
func (k *kitty) Paint(out *bytes.Buffer, picture *image.RGBA, layout Layout) {
	before := k.current
	k.current = 1
	if before == 1 {
		k.current = 2
	}
	size := picture.Rect.Size()
	var compressed bytes.Buffer
	z, err := zlib.NewWriterLevel(&compressed, zlib.BestSpeed)
	if err != nil {
		panic(err) // no such level
	}
	row := make([]byte, size.X*3)
	for y := range size.Y {
		from := picture.Pix[y*picture.Stride:]
		for x := range size.X {
			copy(row[x*3:], from[x*4:x*4+3])
		}
		_, _ = z.Write(row) // a bytes.Buffer takes all
	}
	_ = z.Close()
	data := base64.StdEncoding.AppendEncode(nil, compressed.Bytes())
	moveTo(out, layout.Cells.Min.X, layout.Cells.Min.Y)
	control := fmt.Sprintf("a=T,f=24,o=z,s=%d,v=%d,i=%d,p=1,c=%d,r=%d,C=1,q=2,", size.X, size.Y, k.current,
		layout.Cells.Dx(), layout.Cells.Dy())
	for len(data) > 0 {
		chunk := data[:min(len(data), kittyChunk)]
		data = data[len(chunk):]
		more := 0
		if len(data) > 0 {
			more = 1
		}
		fmt.Fprintf(out, "\x1b_G%sm=%d;%s\x1b\\", control, more, chunk)
		control = ""
	}
	if before != 0 {
		fmt.Fprintf(out, "\x1b_Ga=d,d=I,i=%d,q=2\x1b\\", before)
	}
}

//go:build linux

package upload

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/virtkit/virtkit/pkg/vm/imageformat"
)

// sparseFile is a file of a size with noise at some places.
func sparseFile(t *testing.T, size int64, at ...int64) (*os.File, Image) {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "disk.img"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	if err := file.Truncate(size); err != nil {
		t.Fatal(err)
	}
	noise := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise) // never fails
	for _, offset := range at {
		if _, err := file.WriteAt(noise[:min(int64(len(noise)), size-offset)], offset); err != nil {
			t.Fatal(err)
		}
	}
	return file, Image{ReaderAt: file, Size: size, Format: imageformat.Raw}
}

// Of an image of 10 GiB is sent what it has, and a little for its holes; it is the image again when it is decompressed.
func TestWithoutHoles(t *testing.T) {
	const size = 10<<30 + 4097
	file, image := sparseFile(t, size, 0, 5*part-1, 5<<30, size-4097)
	sent, err := image.WithoutHoles(file)
	if err != nil {
		t.Fatal(err)
	}
	if most := int64(5*part + size/part*4500); sent.Size > most || sent.Format != imageformat.Raw {
		t.Errorf("%d bytes are sent, at most %d: %+v", sent.Size, most, sent.Format)
	}
	whole := make([]byte, sent.Size)
	if n, err := sent.ReadAt(whole, 0); err != nil || int64(n) != sent.Size {
		t.Fatal(n, err)
	}
	unpacked, err := gzip.NewReader(bytes.NewReader(whole))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.New()
	if n, err := io.Copy(sum, io.LimitReader(unpacked, 64<<20)); err != nil || n != 64<<20 {
		t.Fatal(n, err)
	}
	want := sha256.New()
	if _, err := io.Copy(want, io.NewSectionReader(file, 0, 64<<20)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(sum.Sum(nil), want.Sum(nil)) {
		t.Error("its beginning is another")
	}
	// Wherever the upload goes on, the stream is the same.
	for _, at := range []int64{
		0, 1, 9, 10, part, sent.begin(t, 2) - 1, sent.begin(t, 2), sent.Size - 1, sent.Size / 2,
	} {
		piece := make([]byte, min(100_000, sent.Size-at))
		if n, err := sent.ReadAt(piece, at); err != nil || n != len(piece) || !bytes.Equal(piece, whole[at:][:n]) {
			t.Errorf("at %d it is another: %d %v", at, n, err)
		}
	}
	if n, err := sent.ReadAt(make([]byte, 2), sent.Size-1); n != 1 || !errors.Is(err, io.EOF) {
		t.Errorf("behind its end: %d %v", n, err)
	}
}

func (i Image) begin(t *testing.T, number int) int64 {
	t.Helper()
	return i.ReaderAt.(*sparse).begins[number]
}

// All of a small image comes through, byte for byte, also where it ends amid a part.
func TestWithoutHolesWhole(t *testing.T) {
	for _, size := range []int64{8 * part, 8*part + 1, 9*part - 1} {
		file, image := sparseFile(t, size, 6*part+5, size-3)
		sent, err := image.WithoutHoles(file)
		if err != nil || sent.Size >= size {
			t.Fatalf("%d bytes of %d: %v", sent.Size, size, err)
		}
		unpacked, err := gzip.NewReader(io.NewSectionReader(sent, 0, sent.Size))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(unpacked)
		if err != nil {
			t.Fatal(err)
		}
		want, err := io.ReadAll(io.NewSectionReader(file, 0, size))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes are another: %v", size, err)
		}
	}
}

// An image with few holes goes as it is.
func TestFewHoles(t *testing.T) {
	file, image := sparseFile(t, 4*part, 0)
	if sent, err := image.WithoutHoles(file); err != nil || sent.Size != image.Size || sent.ReaderAt != file {
		t.Errorf("%d bytes, %T: %v", sent.Size, sent.ReaderAt, err)
	}
}

// One that has become shorter is an error, not zeros.
func TestWithoutHolesTruncated(t *testing.T) {
	file, image := sparseFile(t, 8*part, 6*part)
	sent, err := image.WithoutHoles(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Truncate(part); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, io.NewSectionReader(sent, 0, sent.Size)); err == nil {
		t.Error("it was read")
	}
}

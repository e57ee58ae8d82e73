package disk

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/vm/domain"
)

// What others who have the claim put in the image's place is not taken for it, neither when it is looked at nor,
// swapped since, when it is opened.
func TestImageIsARegularFile(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(dir, "outside")
	if err := os.WriteFile(outside, make([]byte, 1024), 0o600); err != nil {
		t.Fatal(err)
	}
	image := filepath.Join(dir, "claim", ClaimImage)
	if err := os.Mkdir(filepath.Dir(image), 0o755); err != nil {
		t.Fatal(err)
	}
	for what, plant := range map[string]func() error{
		"link":      func() error { return os.Symlink(outside, image) },
		"FIFO":      func() error { return unix.Mkfifo(image, 0o600) },
		"directory": func() error { return os.Mkdir(image, 0o700) },
	} {
		if err := plant(); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			if f, _, err := openRegular(image); !errors.Is(err, errNotRegular) {
				t.Errorf("%s: %v, %v", what, f, err)
			}
			if what != "link" {
				return
			}
			for _, readOnly := range []bool{true, false} {
				if _, err := directIO(domain.Source{Path: image, ReadOnly: readOnly}); !errors.Is(err, unix.ELOOP) {
					t.Errorf("%s, opened: %v", what, err)
				}
			}
		}()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatalf("held up by a %s", what)
		}
		if err := os.Remove(image); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(image, make([]byte, 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	f, info, err := openRegular(image)
	if err != nil || info.Size() != 1000 {
		t.Fatalf("the image: %v", err)
	}
	f.Close()
}

package images

import (
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/virtkit/virtkit/pkg/client/action"
)

// Fetcher downloads images into a directory.
type Fetcher struct {
	// HTTP is the client; its redirects and its proxy are as it has them.
	HTTP *http.Client
	// Dir is where files are kept while they are incomplete, and when they are complete.
	Dir string
	// Show, which may be nil, is told how many bytes are there, and of how many; 0 for not known. It is told first of
	// those that are there before the download goes on.
	Show func(have, size int64)
	// Now is the clock by which keys and signatures expire; time.Now unless set.
	Now func() time.Time
}

// File is a downloaded image.
type File struct {
	Path string
	// SHA is the checksum that was verified, hexadecimal: SHA-256 or SHA-512, by its length.
	SHA string
}

// StatusError is an answer of a server that is not the file.
type StatusError struct {
	URL    string
	Status string
	Code   int
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("download %s: the server says %s", e.URL, e.Status)
}

// MismatchError is a file that has not the checksum that was published.
type MismatchError struct{ URL, Want, Got string }

func (e *MismatchError) Error() string {
	return fmt.Sprintf("download %s: the file's checksum is %s, and %s is published; it was removed. Try again, and "+
		"if it stays so, somebody is changing the file", e.URL, e.Got, e.Want)
}

// Fetch downloads the file of a source, unless it is there, and verifies its checksum. Errors: *StatusError,
// *SignatureError, *MismatchError. What was cut off goes on where
// it was. A file with the wrong checksum is removed. Of several programs that fetch the same file one does, and the
// others wait for it.
func (f *Fetcher) Fetch(ctx context.Context, s *Source) (*File, error) {
	want, err := f.checksum(ctx, s)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(f.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of images: %w", err)
	}
	name := hex.EncodeToString(want)
	done := filepath.Join(f.Dir, name[:32])
	if sum, err := sumOf(done, len(want)); err == nil && sum == name {
		return &File{Path: done, SHA: name}, nil
	}
	unlock, err := lock(ctx, done)
	if err != nil {
		return nil, fmt.Errorf("wait for another download of the image: %w", err)
	}
	defer unlock()
	if sum, err := sumOf(done, len(want)); err == nil && sum == name { // another has brought it meanwhile
		return &File{Path: done, SHA: name}, nil
	}
	part := done + ".part"
	if err := f.download(ctx, s.URL, part); err != nil {
		return nil, err
	}
	sum, err := sumOf(part, len(want))
	if err != nil {
		return nil, fmt.Errorf("read the image: %w", err)
	}
	if sum != name {
		return nil, errors.Join(&MismatchError{URL: s.URL, Want: name, Got: sum}, os.Remove(part))
	}
	if err := os.Rename(part, done); err != nil {
		return nil, fmt.Errorf("keep the image: %w", err)
	}
	return &File{Path: done, SHA: name}, nil
}

// checksum returns the checksum of the catalogue, or the published one, whose signature is verified if the catalogue
// names one.
func (f *Fetcher) checksum(ctx context.Context, s *Source) ([]byte, error) {
	if s.Checksum != "" {
		return ParseChecksum(s.Checksum)
	}
	sums, err := f.small(ctx, s.Checksums, maxSums, "file of checksums")
	if err != nil {
		return nil, err
	}
	if s.Signature != nil {
		if sums, err = f.signed(ctx, s, sums); err != nil {
			return nil, err
		}
	}
	address, err := url.Parse(s.URL)
	if err != nil {
		return nil, fmt.Errorf("url: %w", err)
	}
	sum, err := ChecksumOf(sums, path.Base(address.Path))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Checksums, err)
	}
	return sum, nil
}

// get asks for a file, from a byte on. An address with https does not redirect to one without. Reading the answer fails
// when the server sends nothing for a while.
func (f *Fetcher) get(ctx context.Context, address string, from int64) (*http.Response, error) {
	silence := newStall(ctx)
	request, err := http.NewRequestWithContext(silence.ctx, http.MethodGet, address, nil)
	if err != nil {
		silence.stop()
		return nil, fmt.Errorf("download %s: %w", address, err)
	}
	if from > 0 {
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	}
	secure := *f.HTTP
	secure.CheckRedirect = func(next *http.Request, before []*http.Request) error {
		if strings.HasPrefix(address, "https:") && next.URL.Scheme != "https" {
			return fmt.Errorf("it redirects to %s, which has not https", next.URL.Redacted())
		}
		const most = 10
		if len(before) >= most {
			return errors.New("it redirects without end")
		}
		return nil
	}
	answer, err := secure.Do(request)
	silence.timer.Stop()
	if err != nil {
		var outer *url.Error
		host := request.URL.Host
		if err = silence.why(err); errors.As(err, &outer) {
			// The outer one has the address, and where it was redirected to.
			err = outer.Err
			if last, wrong := url.Parse(outer.URL); wrong == nil {
				host = last.Host
			}
		}
		silence.stop()
		return nil, fmt.Errorf("download %s: %w", address, &action.HostError{Host: host, Err: err})
	}
	answer.Body = &body{answer.Body, silence, request.URL.Host}
	switch answer.StatusCode {
	case http.StatusOK, http.StatusPartialContent, http.StatusRequestedRangeNotSatisfiable:
		return answer, nil
	}
	answer.Body.Close()
	return nil, &StatusError{URL: address, Status: answer.Status, Code: answer.StatusCode}
}

// download gets what is not in file yet.
func (f *Fetcher) download(ctx context.Context, address, file string) error {
	out, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("keep the image: %w", err)
	}
	err = f.append(ctx, address, out)
	return errors.Join(err, out.Close())
}

func (f *Fetcher) append(ctx context.Context, address string, out *os.File) error {
	info, err := out.Stat()
	if err != nil {
		return fmt.Errorf("keep the image: %w", err)
	}
	have := info.Size()
	answer, err := f.get(ctx, address, have)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	switch answer.StatusCode {
	case http.StatusRequestedRangeNotSatisfiable:
		return nil // all is there, or the file is another one: the checksum says
	case http.StatusOK:
		// The server has no ranges, or nothing was asked to be left out.
		if have > 0 {
			if err := out.Truncate(0); err != nil {
				return fmt.Errorf("keep the image: %w", err)
			}
			have = 0
		}
	}
	size := int64(0)
	if answer.ContentLength > 0 {
		size = have + answer.ContentLength
	}
	shown := &progress{to: out, have: have, size: size, show: f.Show}
	if f.Show != nil {
		f.Show(have, size)
	}
	_, err = io.Copy(shown, answer.Body)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("download %s: the connection was lost after %d bytes (%w); repeat the command, which goes "+
			"on from there", address, shown.have, err)
	case err != nil:
		return fmt.Errorf("download %s: %w", address, err)
	}
	return nil
}

// progress shows how much was written.
type progress struct {
	to         io.Writer
	have, size int64
	show       func(have, size int64)
}

func (p *progress) Write(b []byte) (int, error) {
	n, err := p.to.Write(b)
	p.have += int64(n)
	if p.show != nil {
		p.show(p.have, p.size)
	}
	return n, err
}

// sumOf returns the SHA-256 or SHA-512 of a file, in hex; length is that of the sum in bytes.
func sumOf(file string, length int) (string, error) {
	in, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer in.Close()
	sum := sha256.New()
	if length == sha512.Size {
		sum = sha512.New()
	}
	if _, err := io.Copy(sum, in); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

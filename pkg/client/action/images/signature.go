package images

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
)

// Signature says how the file of checksums is signed, with OpenPGP.
type Signature struct {
	// URL is the address, with https, of the signature. Without it the file of checksums is itself a signed message.
	URL string `json:"url,omitempty"`
	// Key is the address, with https, of the key; the file may have others, too. It may be left out if SigningKey is
	// set, and then is where a renewed key is looked for.
	Key string `json:"key,omitempty"`
	// SigningKey is the key itself: one OpenPGP public key as text, which begins with BEGIN PGP PUBLIC KEY BLOCK.
	SigningKey string `json:"signingKey,omitempty"`
	// Fingerprint is the key's: 40 or 64 hexadecimal digits. It is what is trusted, not the address. It may be left out
	// if SigningKey is set.
	Fingerprint string `json:"fingerprint,omitempty"`
}

// Bounds of what is downloaded for a signature, bytes. The keys of a distribution's ten years have some 100 KiB.
const (
	maxKeys      = 4 << 20
	maxSignature = 64 << 10
)

var fingerprintForm = regexp.MustCompile(`^([0-9A-Fa-f]{40}|[0-9A-Fa-f]{64})$`)

func (s *Signature) check() error {
	if (s.Fingerprint != "" || s.SigningKey == "") && !fingerprintForm.MatchString(s.Fingerprint) {
		return fmt.Errorf("fingerprint: %q is no fingerprint of a key: 40 or 64 hexadecimal digits, without blanks",
			cut(s.Fingerprint))
	}
	switch {
	case s.SigningKey == "" && s.Key == "":
		return errors.New("key: none is given; write its address, or the key itself as signingKey")
	case s.Key != "" && !secure(s.Key):
		return fmt.Errorf("key: %q is no address with https", cut(s.Key))
	case s.URL != "" && !secure(s.URL):
		return fmt.Errorf("url: %q is no address with https", cut(s.URL))
	}
	if s.SigningKey != "" {
		if _, err := signingKey([]byte(s.SigningKey), s.Fingerprint); err != nil {
			return fmt.Errorf("signingKey: %w", err)
		}
	}
	return nil
}

// Signer returns the fingerprint of the key, upper case; "" if the key cannot be read.
func (s *Signature) Signer() string {
	if s.Fingerprint != "" {
		return strings.ToUpper(s.Fingerprint)
	}
	key, err := signingKey([]byte(s.SigningKey), "")
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%X", key.PrimaryKey.Fingerprint)
}

// secure reports whether something is an address with https, and without an account.
func secure(text string) bool {
	address, err := url.Parse(text)
	return err == nil && address.Host != "" && address.Scheme == "https" && address.User == nil
}

// SignatureError is a file of checksums that has not been signed by the key of the catalogue.
type SignatureError struct {
	URL, Fingerprint string
	Err              error
}

func (e *SignatureError) Error() string {
	return fmt.Sprintf("%s: it is not shown to be signed by the key %s (%s), so nothing was downloaded. %s",
		e.URL, strings.ToUpper(e.Fingerprint), e.Err, e.remedy())
}

func (e *SignatureError) Unwrap() error { return e.Err }

func (e *SignatureError) remedy() string {
	const add = "see `virtctl image add --help`"
	switch {
	case errors.Is(e.Err, errKeyExpired), errors.Is(e.Err, errKeyRevoked), errors.Is(e.Err, errWeakHash):
		return "Take the key that the publisher signs with now: " + add
	default:
		return "Try again; if it stays so, somebody is changing the file, or the publisher has a new key: " + add
	}
}

// signed returns what of a file of checksums is signed by the key. The key of the catalogue is tried first, then the
// one of an earlier download. If it has expired or has not the subkey that has signed, it is downloaded anew.
func (f *Fetcher) signed(ctx context.Context, s *Source, sums []byte) ([]byte, error) {
	signer := s.Signature.Signer()
	detached, err := f.detached(ctx, s)
	if err != nil {
		return nil, err
	}
	var wrong error
	for _, key := range f.known(s.Signature) {
		text, err := verify(key, sums, detached, f.now())
		if err == nil {
			return text, nil
		}
		wrong = err
		if !errors.Is(err, errKeyExpired) && !errors.Is(err, errOtherKey) {
			return nil, &SignatureError{s.Checksums, signer, err}
		}
	}
	if s.Signature.Key == "" {
		return nil, &SignatureError{s.Checksums, signer, wrong}
	}
	key, err := f.renewed(ctx, s.Signature)
	switch {
	case err != nil && wrong == nil:
		return nil, err
	case err != nil:
		return nil, &SignatureError{
			s.Checksums, signer, fmt.Errorf("%w, and no newer copy of it was had: %w", wrong, err),
		}
	}
	text, err := verify(key, sums, detached, f.now())
	if err != nil {
		return nil, &SignatureError{s.Checksums, signer, err}
	}
	return text, nil
}

// detached downloads the signature that is a file of its own; nil if the catalogue names none.
func (f *Fetcher) detached(ctx context.Context, s *Source) ([]byte, error) {
	if s.Signature.URL == "" {
		return nil, nil
	}
	data, err := f.small(ctx, s.Signature.URL, maxSignature, "signature")
	var status *StatusError
	switch {
	case errors.As(err, &status) && (status.Code == http.StatusNotFound || status.Code == http.StatusGone):
		none := fmt.Errorf("%w: %s answers %s", errNoSignature, status.URL, status.Status)
		return nil, &SignatureError{s.Checksums, s.Signature.Signer(), none}
	case err != nil:
		return nil, err
	case len(data) == 0:
		return nil, &SignatureError{
			s.Checksums, s.Signature.Signer(), fmt.Errorf("%w: %s is empty", errNoSignature, s.Signature.URL),
		}
	}
	return data, nil
}

func (f *Fetcher) now() time.Time {
	if f.Now == nil {
		return time.Now()
	}
	return f.Now()
}

// known returns the copies of the key that need no download.
func (f *Fetcher) known(s *Signature) []*openpgp.Entity {
	var keys []*openpgp.Entity
	if s.SigningKey != "" {
		if key, err := signingKey([]byte(s.SigningKey), s.Fingerprint); err == nil { // check has seen to it
			keys = append(keys, key)
		}
	}
	if s.Key != "" {
		if data, err := os.ReadFile(f.kept(s)); err == nil {
			if key, err := keyOf(data, s.Signer()); err == nil { // else it is downloaded again
				keys = append(keys, key)
			}
		}
	}
	return keys
}

func (f *Fetcher) kept(s *Signature) string {
	return filepath.Join(f.Dir, "key-"+strings.ToLower(s.Signer()))
}

// renewed downloads the key, and keeps it. The fingerprint decides whether it is the one.
func (f *Fetcher) renewed(ctx context.Context, s *Signature) (*openpgp.Entity, error) {
	data, err := f.small(ctx, s.Key, maxKeys, "key")
	if err != nil {
		return nil, err
	}
	key, err := keyOf(data, s.Signer())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Key, err)
	}
	if err := keep(f.kept(s), data); err != nil {
		return nil, fmt.Errorf("keep the key of a signature: %w", err)
	}
	return key, nil
}

// keep writes a file whole or not at all.
func keep(file string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(file), "key-*.part")
	if err != nil {
		return err
	}
	_, err = temporary.Write(data)
	if err = errors.Join(err, temporary.Close()); err == nil {
		err = os.Rename(temporary.Name(), file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary.Name()))
	}
	return nil
}

// small downloads a file of at most so many bytes; what says what it should be.
func (f *Fetcher) small(ctx context.Context, address string, most int64, what string) ([]byte, error) {
	answer, err := f.get(ctx, address, 0)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(io.LimitReader(answer.Body, most+1))
	if err != nil {
		return nil, fmt.Errorf("download %s: %w", address, err)
	}
	if int64(len(data)) > most {
		return nil, fmt.Errorf("download %s: it has more than %d bytes, and is no %s", address, most, what)
	}
	return data, nil
}

package images

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
)

// Signature says how the file of checksums is signed, with OpenPGP.
type Signature struct {
	// URL is the address, with https, of the signature. Without it the file of checksums is itself a signed message.
	URL string `json:"url,omitempty"`
	// Key is the address, with https, of the key; the file may have others, too.
	Key string `json:"key"`
	// Fingerprint is the key's: 40 or 64 hexadecimal digits. It is what is trusted, not the address.
	Fingerprint string `json:"fingerprint"`
}

// Bounds of what is downloaded for a signature, bytes. The keys of a distribution's ten years have some 100 KiB.
const (
	maxKeys      = 4 << 20
	maxSignature = 64 << 10
)

var fingerprintForm = regexp.MustCompile(`^([0-9A-Fa-f]{40}|[0-9A-Fa-f]{64})$`)

func (s *Signature) check() error {
	if !fingerprintForm.MatchString(s.Fingerprint) {
		return fmt.Errorf("fingerprint: %q is no fingerprint of a key: 40 or 64 hexadecimal digits, without blanks",
			cut(s.Fingerprint))
	}
	if !secure(s.Key) {
		return fmt.Errorf("key: %q is no address with https", s.Key)
	}
	if s.URL != "" && !secure(s.URL) {
		return fmt.Errorf("url: %q is no address with https", s.URL)
	}
	return nil
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
	return fmt.Sprintf("%s: it is not shown to be signed by the key %s (%s), so nothing was downloaded. Try again; if "+
		"it stays so, somebody is changing the file, or the publisher has a new key: see `virtctl image add --help`",
		e.URL, strings.ToUpper(e.Fingerprint), e.Err)
}

func (e *SignatureError) Unwrap() error { return e.Err }

// signed returns what of a file of checksums is signed by the key.
func (f *Fetcher) signed(ctx context.Context, s *Source, sums []byte) ([]byte, error) {
	keys, err := f.keys(ctx, s.Signature)
	if err != nil {
		return nil, err
	}
	var detached []byte
	if s.Signature.URL != "" {
		if detached, err = f.small(ctx, s.Signature.URL, maxSignature, "signature"); err != nil {
			return nil, err
		}
	}
	text, err := verify(keys, sums, detached)
	if err != nil {
		return nil, &SignatureError{s.Checksums, s.Signature.Fingerprint, err}
	}
	return text, nil
}

// verify returns what is signed by one of the keys: all of a text with a detached signature, or the message within one
// without.
func verify(keys openpgp.EntityList, text, detached []byte) ([]byte, error) {
	if detached == nil {
		block, _ := clearsign.Decode(text)
		if block == nil {
			return nil, errors.New("it is no signed message")
		}
		if _, err := block.VerifySignature(keys, nil); err != nil {
			return nil, err
		}
		return block.Plaintext, nil
	}
	check := openpgp.CheckDetachedSignature
	if armored(detached) {
		check = openpgp.CheckArmoredDetachedSignature
	}
	if _, err := check(keys, bytes.NewReader(text), bytes.NewReader(detached), nil); err != nil {
		return nil, err
	}
	return text, nil
}

// armored reports whether OpenPGP data are text: in binary the first bit is set.
func armored(data []byte) bool { return len(data) > 0 && data[0]&0x80 == 0 }

// keys returns the key of a signature: that of an earlier download, or the one of its address. The fingerprint decides.
func (f *Fetcher) keys(ctx context.Context, s *Signature) (openpgp.EntityList, error) {
	file := filepath.Join(f.Dir, "key-"+strings.ToLower(s.Fingerprint))
	kept, err := os.ReadFile(file)
	if err == nil {
		if keys, wrong := keyOf(kept, s.Fingerprint); wrong == nil {
			return keys, nil
		}
	}
	data, err := f.small(ctx, s.Key, maxKeys, "key")
	if err != nil {
		return nil, err
	}
	keys, err := keyOf(data, s.Fingerprint)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Key, err)
	}
	if err := keep(file, data); err != nil {
		return nil, fmt.Errorf("keep the key of a signature: %w", err)
	}
	return keys, nil
}

// keyOf returns the key with a fingerprint out of a file of OpenPGP keys, in text or in binary.
func keyOf(data []byte, fingerprint string) (openpgp.EntityList, error) {
	read := openpgp.ReadKeyRing
	if armored(data) {
		read = openpgp.ReadArmoredKeyRing
	}
	all, err := read(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("it has no OpenPGP keys: %w", err)
	}
	want, err := hex.DecodeString(fingerprint)
	if err != nil {
		return nil, fmt.Errorf("fingerprint: %w", err)
	}
	for _, entity := range all {
		if bytes.Equal(entity.PrimaryKey.Fingerprint, want) {
			return openpgp.EntityList{entity}, nil
		}
	}
	return nil, fmt.Errorf("its %d keys have not the fingerprint %s", len(all), strings.ToUpper(fingerprint))
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

package images

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
)

// signer is a distribution with a key.
type signer struct{ *openpgp.Entity }

func newSigner(t testing.TB) signer {
	t.Helper()
	entity, err := openpgp.NewEntity("images", "", "images@example.com", nil)
	if err != nil {
		t.Fatal(err)
	}
	return signer{entity}
}

func (s signer) fingerprint() string { return hex.EncodeToString(s.PrimaryKey.Fingerprint) }

// public returns the keys of signers, in text or in binary.
func public(t testing.TB, text bool, signers ...signer) []byte {
	t.Helper()
	var binary bytes.Buffer
	for _, s := range signers {
		if err := s.Serialize(&binary); err != nil {
			t.Fatal(err)
		}
	}
	if !text {
		return binary.Bytes()
	}
	var out bytes.Buffer
	w, err := armor.Encode(&out, openpgp.PublicKeyType, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = w.Write(binary.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func (s signer) detached(t testing.TB, text []byte, armored bool) []byte {
	t.Helper()
	var out bytes.Buffer
	sign := openpgp.DetachSign
	if armored {
		sign = openpgp.ArmoredDetachSign
	}
	if err := sign(&out, s.Entity, bytes.NewReader(text), nil); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func (s signer) message(t testing.TB, text []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := clearsign.Encode(&out, s.PrivateKey, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// A file of checksums counts as far as the key of the catalogue has signed it, however that is written; nothing else is
// downloaded.
func TestSigned(t *testing.T) {
	ours, theirs := newSigner(t), newSigner(t)
	disk := bytes.Repeat([]byte("disk"), 1<<10)
	digest := sha256.Sum256(disk)
	sums := []byte(hex.EncodeToString(digest[:]) + "  disk.img\n")
	forged := []byte(strings.Repeat("0", 64) + "  disk.img\n")
	large := bytes.Repeat([]byte{'x'}, maxSignature+1)
	for name, test := range map[string]struct {
		sums, signature, keys []byte
		want                  string
	}{
		"binary":             {sums, ours.detached(t, sums, false), public(t, false, ours), ""},
		"armored":            {sums, ours.detached(t, sums, true), public(t, true, ours), ""},
		"one key of several": {sums, ours.detached(t, sums, true), public(t, false, theirs, ours), ""},
		"a message":          {ours.message(t, sums), nil, public(t, true, ours), ""},
		"another key": {
			sums, theirs.detached(t, sums, false), public(t, false, theirs, ours), "not shown to be signed by the key",
		},
		"another text": {
			forged, ours.detached(t, sums, false), public(t, false, ours), "not shown to be signed by the key",
		},
		"another message": {
			bytes.Replace(ours.message(t, sums), sums[:64], forged[:64], 1), nil, public(t, false, ours),
			"not shown to be signed by the key",
		},
		// What stands beside the message is nobody's.
		"a line before a message": {
			append(bytes.Clone(forged), ours.message(t, sums)...), nil, public(t, false, ours), "",
		},
		"no message":   {sums, nil, public(t, false, ours), "it is no signed message"},
		"no signature": {sums, []byte("404, found nothing"), public(t, false, ours), "not shown to be signed"},
		"not the key": {
			sums, ours.detached(t, sums, false), public(t, false, theirs), "its 1 keys have not the fingerprint",
		},
		"no keys":        {sums, ours.detached(t, sums, false), []byte("<html>"), "it has no OpenPGP keys"},
		"nothing":        {sums, ours.detached(t, sums, false), nil, "its 0 keys have not the fingerprint"},
		"endless":        {sums, large, public(t, false, ours), "is no signature"},
		"of another sum": {ours.message(t, forged), nil, public(t, false, ours), "the file's checksum is"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPublisher(t)
			p.disk, p.sums = disk, string(test.sums)
			asked := 0
			p.Config.Handler.(*http.ServeMux).HandleFunc("/key", func(w http.ResponseWriter, _ *http.Request) {
				asked++
				_, _ = w.Write(test.keys)
			})
			p.Config.Handler.(*http.ServeMux).HandleFunc("/SUMS.gpg", func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write(test.signature)
			})
			source := p.source()
			source.Signature = &Signature{Key: p.URL + "/key", Fingerprint: ours.fingerprint()}
			if test.signature != nil {
				source.Signature.URL = p.URL + "/SUMS.gpg"
			}
			f := &Fetcher{HTTP: p.Client(), Dir: filepath.Join(t.TempDir(), "images")}
			file, err := f.Fetch(t.Context(), source)
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Fatalf("%v, want %q", err, test.want)
				}
				var wrong *SignatureError
				if errors.As(err, &wrong) && len(p.ranges) > 0 {
					t.Error("the image was downloaded all the same")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(file.Path); err != nil || !bytes.Equal(got, disk) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			if _, err := f.Fetch(t.Context(), source); err != nil || asked != 1 {
				t.Errorf("again: %v, the key was asked for %d times", err, asked)
			}
		})
	}
}

// A key that was kept and is damaged is downloaded again.
func TestKeptKey(t *testing.T) {
	ours := newSigner(t)
	p := newPublisher(t)
	digest := sha256.Sum256(p.disk)
	p.sums = string(ours.message(t, []byte(hex.EncodeToString(digest[:])+"  disk.img\n")))
	p.Config.Handler.(*http.ServeMux).HandleFunc("/key", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(public(t, true, ours))
	})
	f := &Fetcher{HTTP: p.Client(), Dir: t.TempDir()}
	kept := filepath.Join(f.Dir, "key-"+ours.fingerprint())
	if err := os.WriteFile(kept, []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	source := p.source()
	source.Signature = &Signature{Key: p.URL + "/key", Fingerprint: strings.ToUpper(ours.fingerprint())}
	if _, err := f.Fetch(t.Context(), source); err != nil {
		t.Fatal(err)
	}
	if _, err := keyOf(mustRead(t, kept), ours.fingerprint()); err != nil {
		t.Errorf("what is kept: %v", err)
	}
}

func mustRead(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestSignatureCheck(t *testing.T) {
	const key, print = "https://example.com/key.asc", "D2EB44626FDDC30B513D5BB71A5D6C4C7DB87C81"
	for want, s := range map[string]Source{
		"": {Checksums: "https://example.com/SUMS", Signature: &Signature{Key: key, Fingerprint: print}},
		"signature.fingerprint: ": {
			Checksums: "https://example.com/SUMS", Signature: &Signature{Key: key, Fingerprint: "7DB87C81"},
		},
		"signature.key: ": {
			Checksums: "https://example.com/SUMS",
			Signature: &Signature{Key: "http://example.com/key.asc", Fingerprint: print},
		},
		"signature.url: ": {
			Checksums: "https://example.com/SUMS",
			Signature: &Signature{Key: key, Fingerprint: print, URL: "http://example.com/SUMS.gpg"},
		},
		"signature: it signs a file of checksums": {
			Checksum: strings.Repeat("0", 64), Signature: &Signature{Key: key, Fingerprint: print},
		},
	} {
		s.Arch, s.URL = "amd64", "https://example.com/disk.img"
		err := s.check()
		if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Whatever a server sends in the place of keys and signatures is no panic, and no signature.
func FuzzSignature(f *testing.F) {
	ours := newSigner(f)
	sums := []byte("a  disk.img\n")
	f.Add(public(f, true, ours), ours.message(f, sums), []byte(nil))
	f.Add(public(f, false, ours), sums, ours.detached(f, sums, false))
	f.Add(public(f, false, ours), sums, ours.detached(f, sums, true))
	trusted := openpgp.EntityList{newSigner(f).Entity}
	f.Fuzz(func(t *testing.T, keys, text, detached []byte) {
		if all, err := keyOf(keys, ours.fingerprint()); err == nil && len(all) != 1 {
			t.Errorf("%d keys", len(all))
		}
		if _, err := verify(trusted, text, detached); err == nil {
			t.Error("signed by a key that nobody has used")
		}
	})
}

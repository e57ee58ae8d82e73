package images

import (
	"bytes"
	"crypto"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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
		"binary":  {sums, ours.detached(t, sums, false), public(t, false, ours), ""},
		"armored": {sums, ours.detached(t, sums, true), public(t, true, ours), ""},
		"version 3": {
			sums, armour(t, openpgp.SignatureType, ours.v3(t, sums, nil)), public(t, true, ours), "",
		},
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
		"no signature": {sums, []byte("404, found nothing"), public(t, false, ours), "there is no signature"},
		"an empty one": {sums, []byte{}, public(t, false, ours), "there is no signature: https://"},
		"revoked key":  {sums, ours.detached(t, sums, false), public(t, false, ours.revoked(t)), "has been revoked"},
		"expired key":  {sums, ours.detached(t, sums, false), public(t, false, ours.expired(t)), "the key has expired"},
		"weak": {
			sums, ours.v3(t, sums, func(v *v3) { v.hash, v.hashID = crypto.SHA1, 2 }), public(t, false, ours),
			"weaker than SHA-256",
		},
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
			f := &Fetcher{HTTP: p.Client(), Dir: filepath.Join(t.TempDir(), "images"), Now: tomorrow}
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

func tomorrow() time.Time { return time.Now().Add(24 * time.Hour) }

// A key in the catalogue needs no download. Its address is asked for a newer copy once it has expired; the copy that is
// kept is then as good.
func TestSigningKey(t *testing.T) {
	ours, theirs := newSigner(t), newSigner(t)
	for name, test := range map[string]struct {
		own, there []byte // there: what the key's address has; nil for no address
		asked      int
		want       string
	}{
		"good":             {public(t, true, ours), nil, 0, ""},
		"good, an address": {public(t, true, ours), []byte("damaged"), 0, ""},
		"expired":          {public(t, true, ours.expired(t)), nil, 0, "the key has expired"},
		"renewed":          {public(t, true, ours.expired(t)), public(t, false, ours), 1, ""},
		"expired there, too": {
			public(t, true, ours.expired(t)), public(t, false, ours.expired(t)), 2, "the key has expired",
		},
		"another there": {
			public(t, true, ours.expired(t)), public(t, false, theirs), 2,
			"the key has expired, and no newer copy of it was had: ",
		},
		// A revoked key does not become good by an older copy of it.
		"revoked": {public(t, true, ours.revoked(t)), public(t, false, ours), 0, "has been revoked"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPublisher(t)
			digest := sha256.Sum256(p.disk)
			p.sums = string(ours.message(t, []byte(hex.EncodeToString(digest[:])+"  disk.img\n")))
			asked := 0
			p.Config.Handler.(*http.ServeMux).HandleFunc("/key", func(w http.ResponseWriter, _ *http.Request) {
				asked++
				_, _ = w.Write(test.there)
			})
			source := p.source()
			source.Signature = &Signature{SigningKey: string(test.own)}
			if test.there != nil {
				source.Signature.Key = p.URL + "/key"
			}
			if err := source.check(); err != nil {
				t.Fatal(err)
			}
			f := &Fetcher{HTTP: p.Client(), Dir: t.TempDir(), Now: tomorrow}
			for range 2 {
				_, err := f.Fetch(t.Context(), source)
				if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
					t.Errorf("%v, want %q", err, test.want)
				}
				if err != nil && !strings.Contains(err.Error(), strings.ToUpper(ours.fingerprint())) {
					t.Errorf("the key is not named: %v", err)
				}
			}
			if asked != test.asked {
				t.Errorf("the key was asked for %d times, want %d", asked, test.asked)
			}
		})
	}
}

// A signature that is not there is an error, and the checksum alone does not do.
func TestMissingSignature(t *testing.T) {
	ours := newSigner(t)
	p := newPublisher(t)
	digest := sha256.Sum256(p.disk)
	p.sums = hex.EncodeToString(digest[:]) + "  disk.img\n"
	source := p.source()
	source.Signature = &Signature{SigningKey: string(public(t, true, ours)), URL: p.URL + "/SUMS.asc"}
	f := &Fetcher{HTTP: p.Client(), Dir: t.TempDir()}
	_, err := f.Fetch(t.Context(), source)
	var wrong *SignatureError
	if !errors.As(err, &wrong) || !errors.Is(err, errNoSignature) || !strings.Contains(err.Error(), "404") {
		t.Errorf("%v", err)
	}
	if len(p.ranges) > 0 {
		t.Error("the image was downloaded all the same")
	}
}

// The keys of the program's catalogue may sign, on the day when they were put there.
func TestBuiltinKeys(t *testing.T) {
	day := time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)
	for _, image := range Builtin().Images {
		for _, source := range image.Sources {
			if source.Signature == nil {
				continue
			}
			key, err := signingKey([]byte(source.Signature.SigningKey), source.Signature.Fingerprint)
			if err != nil {
				t.Errorf("%s: %v", image.Ref(), err)
				continue
			}
			if _, ok := key.SigningKey(day); !ok {
				t.Errorf("%s: the key may not sign", image.Ref())
			}
		}
	}
}

// A file with keys becomes the key of a catalogue, and no private key does.
func TestSigningKeyOfFile(t *testing.T) {
	ours, theirs := newSigner(t), newSigner(t)
	var private bytes.Buffer
	if err := ours.SerializePrivate(&private, nil); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		data        []byte
		fingerprint string
		want        string
	}{
		"text":                 {public(t, true, ours), "", ""},
		"binary":               {public(t, false, ours), "", ""},
		"one of several":       {public(t, false, theirs, ours), ours.fingerprint(), ""},
		"which of several":     {public(t, false, theirs, ours), "", "it has 2 keys; name the fingerprint"},
		"not there":            {public(t, false, theirs), ours.fingerprint(), "its 1 keys have not the fingerprint"},
		"no fingerprint":       {public(t, false, ours), "0x12", "is no fingerprint"},
		"private":              {private.Bytes(), "", "it is a private key"},
		"private, as text":     {armour(t, openpgp.PrivateKeyType, private.Bytes()), "", "it is a private key"},
		"something else":       {[]byte("ssh-ed25519 AAAA"), "", "it has no OpenPGP keys"},
		"nothing":              {nil, "", "it has 0 keys"},
		"larger than keys are": {make([]byte, maxKeys+1), "", "is no key"},
	} {
		text, found, err := SigningKey(test.data, test.fingerprint)
		if test.want != "" {
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: %v, want %q", name, err, test.want)
			}
			continue
		}
		s := &Signature{SigningKey: text}
		if err != nil || s.check() != nil || s.Signer() != found || found != strings.ToUpper(ours.fingerprint()) {
			t.Errorf("%s: %v, %v, %s", name, err, s.check(), found)
		}
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
		"signature.key: none is given": {
			Checksums: "https://example.com/SUMS", Signature: &Signature{Fingerprint: print},
		},
		"signature.signingKey: it is no key as text": {
			Checksums: "https://example.com/SUMS", Signature: &Signature{SigningKey: "\x99\x01"},
		},
		"signature.signingKey: it has no OpenPGP keys": {
			Checksums: "https://example.com/SUMS", Signature: &Signature{SigningKey: "-----BEGIN"},
		},
		"signature.signingKey: its 1 keys have not": {
			Checksums: "https://example.com/SUMS",
			Signature: &Signature{SigningKey: string(public(t, true, newSigner(t))), Fingerprint: print},
		},
		"signature.signingKey: it has more than": {
			Checksums: "https://example.com/SUMS",
			Signature: &Signature{SigningKey: strings.Repeat("a", maxSigningKey+1), Fingerprint: print},
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
	f.Add(public(f, false, ours), sums, ours.v3(f, sums, nil))
	trusted := newSigner(f).Entity
	f.Fuzz(func(t *testing.T, keys, text, detached []byte) {
		key, err := keyOf(keys, ours.fingerprint())
		if err == nil && hex.EncodeToString(key.PrimaryKey.Fingerprint) != ours.fingerprint() {
			t.Errorf("%X is another key", key.PrimaryKey.Fingerprint)
		}
		if _, err := verify(trusted, text, detached, time.Now().Add(time.Hour)); err == nil {
			t.Error("signed by a key that nobody has used")
		}
	})
}

package images

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"encoding/binary"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// v3 makes the packets of a signature of version 3; what it says of the hash function, the time and the issuer may be
// changed.
type v3 struct {
	kind      packet.SignatureType
	hash      crypto.Hash
	hashID    byte
	algorithm byte
	created   time.Time
	issuer    uint64
	tail      []byte
}

func (s signer) v3(t testing.TB, text []byte, change func(*v3)) []byte {
	t.Helper()
	v := v3{
		kind: packet.SigTypeBinary, hash: crypto.SHA256, hashID: 8, algorithm: 1, created: s.PrimaryKey.CreationTime,
		issuer: s.PrimaryKey.KeyId,
	}
	if change != nil {
		change(&v)
	}
	trailer := binary.BigEndian.AppendUint32([]byte{byte(v.kind)}, uint32(v.created.Unix()))
	sum := v.hash.New()
	sum.Write(text)
	sum.Write(trailer)
	digest := sum.Sum(nil)
	number, err := rsa.SignPKCS1v15(rand.Reader, s.PrivateKey.PrivateKey.(*rsa.PrivateKey), v.hash, digest)
	if err != nil {
		t.Fatal(err)
	}
	number = bytes.TrimLeft(number, "\x00")
	bits := len(number) * 8
	for mask := byte(0x80); number[0]&mask == 0; mask >>= 1 {
		bits--
	}
	body := append([]byte{3, 5}, trailer...)
	body = binary.BigEndian.AppendUint64(body, v.issuer)
	body = append(body, v.algorithm, v.hashID, digest[0], digest[1])
	body = binary.BigEndian.AppendUint16(body, uint16(bits))
	body = append(append(body, number...), v.tail...)
	head := []byte{0x80 | tagSignature<<2 | 1} // the old format, with two bytes of length
	return append(binary.BigEndian.AppendUint16(head, uint16(len(body))), body...)
}

func armour(t testing.TB, kind string, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := armor.Encode(&out, kind, nil)
	if err == nil {
		_, err = w.Write(data)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// changed returns a copy of a signer's public key after a change, signed anew by itself.
func (s signer) changed(t testing.TB, change func(*packet.Signature)) signer {
	t.Helper()
	key, err := keyOf(public(t, false, s), "")
	if err != nil {
		t.Fatal(err)
	}
	for name, identity := range key.Identities {
		change(identity.SelfSignature)
		if err := identity.SelfSignature.SignUserId(name, s.PrimaryKey, s.PrivateKey, nil); err != nil {
			t.Fatal(err)
		}
	}
	return signer{key}
}

// expired is a copy of the key that has been good for an hour.
func (s signer) expired(t testing.TB) signer {
	return s.changed(t, func(sig *packet.Signature) { sig.KeyLifetimeSecs = new(uint32(3600)) })
}

// revoked is a copy of the key that has been revoked.
func (s signer) revoked(t testing.TB) signer {
	t.Helper()
	key, err := keyOf(public(t, false, s), "")
	if err != nil {
		t.Fatal(err)
	}
	key.PrivateKey = s.PrivateKey
	if err := key.RevokeKey(packet.KeyCompromised, "stolen", nil); err != nil {
		t.Fatal(err)
	}
	key.PrivateKey = nil
	return signer{key}
}

// Signatures of version 3 count as those of version 4 do, and no others.
func TestV3(t *testing.T) {
	ours, theirs := newSigner(t), newSigner(t)
	text, lines := []byte("sum  disk.img\n"), []byte("sum  disk.img\r\n")
	later := ours.PrimaryKey.CreationTime.Add(24 * time.Hour)
	asText := func(v *v3) { v.kind = packet.SigTypeText }
	for name, test := range map[string]struct {
		key       signer
		signature []byte
		want      error
	}{
		"binary":      {ours, ours.v3(t, text, nil), nil},
		"armoured":    {ours, armour(t, openpgp.SignatureType, ours.v3(t, text, nil)), nil},
		"of text":     {ours, ours.v3(t, lines, asText), nil},
		"SHA-512":     {ours, ours.v3(t, text, func(v *v3) { v.hash, v.hashID = crypto.SHA512, 10 }), nil},
		"two":         {ours, append(theirs.v3(t, text, nil), ours.v3(t, text, nil)...), nil},
		"both kinds":  {ours, append(ours.v3(t, []byte("old"), nil), ours.detached(t, text, false)...), nil},
		"other text":  {ours, ours.v3(t, []byte("forged  disk.img\n"), nil), errBad},
		"other key":   {ours, theirs.v3(t, text, nil), errOtherKey},
		"stolen ID":   {ours, theirs.v3(t, text, func(v *v3) { v.issuer = ours.PrimaryKey.KeyId }), errBad},
		"SHA-1":       {ours, ours.v3(t, text, func(v *v3) { v.hash, v.hashID = crypto.SHA1, 2 }), errWeakHash},
		"SHA-224":     {ours, ours.v3(t, text, func(v *v3) { v.hash, v.hashID = crypto.SHA224, 11 }), errWeakHash},
		"wrong hash":  {ours, ours.v3(t, text, func(v *v3) { v.hashID = 10 }), errBad},
		"not RSA":     {ours, ours.v3(t, text, func(v *v3) { v.algorithm = 17 }), errBad},
		"of a key":    {ours, ours.v3(t, text, func(v *v3) { v.kind = packet.SigTypePositiveCert }), errBad},
		"more behind": {ours, ours.v3(t, text, func(v *v3) { v.tail = []byte{0} }), errBad},
		"to come": {
			ours, ours.v3(t, text, func(v *v3) { v.created = later.Add(time.Hour) }), errExpired,
		},
		"older than the key": {
			ours, ours.v3(t, text, func(v *v3) { v.created = v.created.Add(-time.Hour) }), errOlder,
		},
		"expired key": {ours.expired(t), ours.v3(t, text, nil), errKeyExpired},
		"revoked key": {ours.revoked(t), ours.v3(t, text, nil), errKeyRevoked},
		"key of encryption": {
			ours.changed(t, func(sig *packet.Signature) { sig.FlagSign = false }), ours.v3(t, text, nil),
			errNoSigningKey,
		},
		"cut off": {ours, ours.v3(t, text, nil)[:100], errBad},
		"empty":   {ours, []byte{0x80 | tagSignature<<2, 0}, errNoSignature},
		"a key":   {ours, public(t, false, ours), errNoSignature},
		"a web page": {
			ours, []byte("<html>not found</html>"), errNoSignature,
		},
		"too many": {ours, bytes.Repeat(theirs.v3(t, text, nil), maxPackets+1), errBad},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := verify(test.key.Entity, text, test.signature, later)
			if test.want == nil {
				if err != nil || !bytes.Equal(got, text) {
					t.Errorf("%q, %v", got, err)
				}
				return
			}
			if !errors.Is(err, test.want) {
				t.Errorf("%v, want %v", err, test.want)
			}
		})
	}
}

// A signed message may have a signature of version 3, too.
func TestV3Message(t *testing.T) {
	ours := newSigner(t)
	text := []byte("sum  disk.img\n")
	later := ours.PrimaryKey.CreationTime.Add(time.Hour)
	signature := armour(t, openpgp.SignatureType, ours.v3(t, []byte("sum  disk.img"), func(v *v3) {
		v.kind = packet.SigTypeText
	}))
	message := "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n" + string(text) + string(signature)
	if got, err := verify(ours.Entity, []byte(message), nil, later); err != nil || string(got) != "sum  disk.img" {
		t.Errorf("%q, %v", got, err)
	}
	message = strings.Replace(message, "sum ", "mus ", 1)
	if _, err := verify(ours.Entity, []byte(message), nil, later); !errors.Is(err, errBad) {
		t.Errorf("forged: %v", err)
	}
}

// testdata/v3 was signed once, and GnuPG 2.2 says of it: good.
func TestV3Golden(t *testing.T) {
	read := func(name string) []byte { return mustRead(t, filepath.Join("testdata", "v3", name)) }
	key, err := keyOf(read("key.asc"), "")
	if err != nil {
		t.Fatal(err)
	}
	now := key.PrimaryKey.CreationTime.Add(time.Hour)
	if _, err := verify(key, read("SHA256SUMS"), read("SHA256SUMS.asc"), now); err != nil {
		t.Error(err)
	}
	if _, err := verify(key, append(read("SHA256SUMS"), '\n'), read("SHA256SUMS.asc"), now); !errors.Is(err, errBad) {
		t.Errorf("another text: %v", err)
	}
}

// Whatever stands in the place of a signature of version 3 is no panic, and not a signature of a key that has made
// none. What is read of it is all that there is.
func FuzzV3(f *testing.F) {
	ours, theirs := newSigner(f), newSigner(f)
	for _, hash := range []v3{{hash: crypto.SHA256, hashID: 8}, {hash: crypto.SHA512, hashID: 10}} {
		p := theirs.v3(f, []byte("text"), func(v *v3) {
			v.issuer, v.hash, v.hashID = ours.PrimaryKey.KeyId, hash.hash, hash.hashID
		})
		f.Add([]byte("text"), p[3:])
	}
	f.Fuzz(func(t *testing.T, text, data []byte) {
		s, err := parseV3(data)
		if err == nil {
			again := binary.BigEndian.AppendUint64(append([]byte{3, 5}, s.trailer...), s.issuer)
			again = append(append(again, data[15:17]...), s.left...)
			again = append(append(again, data[19:21]...), s.number...)
			if !bytes.Equal(again, data) {
				t.Errorf("%x was read as %x", data, again)
			}
		}
		if err := verifyV3(ours.Entity, text, data, time.Now().Add(time.Hour)); err == nil {
			t.Error("signed by a key that nobody has used")
		}
	})
}

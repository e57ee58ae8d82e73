package images

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// signatureV3 is a signature packet of version 3 (RFC 4880, section 5.2.2), which the Open Build Service makes, and the
// OpenPGP library does not read. Only RSA is known.
type signatureV3 struct {
	// text is set for a signature of text, whose lines end with CR and LF.
	text    bool
	created time.Time
	issuer  uint64
	hash    crypto.Hash
	// trailer is hashed after the text.
	trailer []byte
	// left are the first two bytes of the hash.
	left []byte
	// number is RSA's, big-endian, without leading zeros.
	number []byte
}

// Bounds of an RSA key that verifies a signature of version 3, bits.
const (
	minRSA = 2048
	maxRSA = 16384
)

// hashesV3 are the hash functions of signatures of version 3 that count, by their numbers in RFC 4880.
var hashesV3 = map[byte]crypto.Hash{8: crypto.SHA256, 9: crypto.SHA384, 10: crypto.SHA512}

// parseV3 reads the contents of a signature packet of version 3, to the last byte.
func parseV3(data []byte) (*signatureV3, error) {
	const (
		fixed  = 19 // up to the two bytes of the hash
		hashed = 5  // type and time of creation
	)
	damaged := func(what string) error { return fmt.Errorf("%w: version 3, %s", errBad, what) }
	if len(data) < fixed+2 || data[0] != 3 || data[1] != hashed {
		return nil, damaged("a wrong header")
	}
	s := &signatureV3{
		text:    data[2] == byte(packet.SigTypeText),
		created: time.Unix(int64(binary.BigEndian.Uint32(data[3:])), 0),
		issuer:  binary.BigEndian.Uint64(data[7:]),
		trailer: data[2:7],
		left:    data[17:fixed],
		number:  data[fixed+2:],
	}
	if !s.text && data[2] != byte(packet.SigTypeBinary) {
		return nil, damaged("not of a file")
	}
	if algorithm := packet.PublicKeyAlgorithm(data[15]); algorithm != packet.PubKeyAlgoRSA &&
		algorithm != packet.PubKeyAlgoRSASignOnly {
		return nil, damaged("not by RSA")
	}
	var ok bool
	if s.hash, ok = hashesV3[data[16]]; !ok {
		return nil, errWeakHash
	}
	bits := int(binary.BigEndian.Uint16(data[fixed:]))
	if bits == 0 || bits > maxRSA || len(s.number) != (bits+7)/8 || s.number[0]>>((bits-1)%8) != 1 {
		return nil, damaged("a wrong number")
	}
	return s, nil
}

// verifyV3 verifies a signature packet of version 3.
func verifyV3(key *openpgp.Entity, text, data []byte, now time.Time) error {
	s, err := parseV3(data)
	if err != nil {
		return err
	}
	keys, err := signers(key, s.issuer)
	if err != nil {
		return err
	}
	digest := s.digest(text)
	err = fmt.Errorf("%w: version 3, and no RSA key of %d to %d bits", errBad, minRSA, maxRSA)
	for i := range keys {
		public, ok := keys[i].PublicKey.PublicKey.(*rsa.PublicKey)
		if !ok || public.N.BitLen() < minRSA || public.N.BitLen() > maxRSA {
			continue
		}
		if err = s.by(public, digest); err == nil {
			return s.counts(&keys[i], now)
		}
	}
	return err
}

// digest returns the hash of what is signed.
func (s *signatureV3) digest(text []byte) []byte {
	sum := s.hash.New()
	if s.text {
		openpgp.NewCanonicalTextHash(sum).Write(text)
	} else {
		sum.Write(text)
	}
	sum.Write(s.trailer)
	return sum.Sum(nil)
}

// by verifies the signature with a key.
func (s *signatureV3) by(public *rsa.PublicKey, digest []byte) error {
	if !bytes.Equal(digest[:2], s.left) || len(s.number) > public.Size() {
		return errBad
	}
	number := make([]byte, public.Size()) // RSA's numbers have the length of the key
	copy(number[len(number)-len(s.number):], s.number)
	if err := rsa.VerifyPKCS1v15(public, s.hash, digest, number); err != nil {
		return errBad
	}
	return nil
}

// counts returns why a good signature does not count, by the rules that the library has for newer versions.
func (s *signatureV3) counts(by *openpgp.Key, now time.Time) error {
	self, identity := by.Entity.PrimarySelfSignature()
	if self == nil {
		return errors.New("the key has not signed itself")
	}
	primary := by.Entity.PrimaryKey
	switch sub := by.PublicKey != primary; {
	case by.Entity.Revoked(now), identity != nil && identity.Revoked(now), sub && by.Revoked(now):
		return errKeyRevoked
	case primary.KeyExpired(self, now), sub && by.PublicKey.KeyExpired(by.SelfSignature, now), self.SigExpired(now),
		sub && by.SelfSignature.SigExpired(now):
		return errKeyExpired
	case s.created.After(now):
		return errExpired
	case s.created.Before(by.PublicKey.CreationTime):
		return errOlder
	}
	return nil
}

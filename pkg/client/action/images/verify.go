package images

import (
	"bytes"
	"crypto"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	pgp "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// Why a signature does not count.
var (
	errNoSignature  = errors.New("there is no signature")
	errOtherKey     = errors.New("another key has signed it")
	errKeyExpired   = errors.New("the key has expired")
	errKeyRevoked   = errors.New("the key has been revoked")
	errNoSigningKey = errors.New("the key is not for signatures of files")
	errExpired      = errors.New("the signature has expired, or has a date to come")
	errOlder        = errors.New("the signature is older than the key")
	errWeakHash     = errors.New("the signature is by a hash function weaker than SHA-256")
	errBad          = errors.New("the signature is of another text, or damaged")
)

// maxPackets bounds the signatures of one file.
const maxPackets = 16

// strong are the hash functions of signatures that count.
var strong = map[crypto.Hash]bool{
	crypto.SHA256: true, crypto.SHA384: true, crypto.SHA512: true, crypto.SHA3_256: true, crypto.SHA3_512: true,
}

// verify returns what is signed by the key: all of a text with a detached signature, or the message within one
// without. One good signature of the key is enough.
func verify(key *openpgp.Entity, text, detached []byte, now time.Time) ([]byte, error) {
	message, signed, signature := text, text, detached
	if detached == nil {
		block, _ := clearsign.Decode(text)
		if block == nil {
			return nil, fmt.Errorf("%w: it is no signed message", errNoSignature)
		}
		data, err := io.ReadAll(block.ArmoredSignature.Body)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errBad, err)
		}
		message, signed, signature = block.Plaintext, block.Bytes, data
	} else if armored(detached) {
		block, err := armor.Decode(bytes.NewReader(detached))
		if err != nil || block.Type != openpgp.SignatureType {
			return nil, fmt.Errorf("%w: what is in its place is none of OpenPGP", errNoSignature)
		}
		if signature, err = io.ReadAll(block.Body); err != nil {
			return nil, fmt.Errorf("%w: %w", errBad, err)
		}
	}
	packets, err := signatures(signature)
	if err != nil {
		return nil, err
	}
	var wrong error
	for _, p := range packets {
		err := verifyPacket(key, signed, p, now)
		if err == nil {
			return message, nil
		}
		if wrong == nil || errors.Is(wrong, errOtherKey) { // the key's own signature says more than another's
			wrong = err
		}
	}
	return nil, wrong
}

// signatures returns the packets of a signature, of which there is at least one.
func signatures(data []byte) ([]*packet.OpaquePacket, error) {
	var all []*packet.OpaquePacket
	reader := packet.NewOpaqueReader(bytes.NewReader(data))
	for {
		p, err := reader.Next()
		switch {
		case errors.Is(err, io.EOF) && len(all) > 0:
			return all, nil
		case errors.Is(err, io.EOF):
			return nil, errNoSignature
		case err != nil:
			return nil, fmt.Errorf("%w: %w", errBad, err)
		case p.Tag != tagSignature || len(p.Contents) == 0:
			return nil, fmt.Errorf("%w: what is in its place is none of OpenPGP", errNoSignature)
		case len(all) == maxPackets:
			return nil, fmt.Errorf("%w: it has more than %d signatures", errBad, maxPackets)
		}
		all = append(all, p)
	}
}

// tagSignature is the tag of a packet that is a signature.
const tagSignature = 2

// verifyPacket verifies one signature.
func verifyPacket(key *openpgp.Entity, text []byte, p *packet.OpaquePacket, now time.Time) error {
	if p.Contents[0] == 3 {
		return verifyV3(key, text, p.Contents, now)
	}
	parsed, err := p.Parse()
	if err != nil {
		return fmt.Errorf("%w: %w", errBad, err)
	}
	signature, ok := parsed.(*packet.Signature)
	if !ok || signature.IssuerKeyId == nil {
		return fmt.Errorf("%w: it names no key", errBad)
	}
	if _, err := signers(key, *signature.IssuerKeyId); err != nil {
		return err
	}
	if !strong[signature.Hash] {
		return errWeakHash
	}
	var alone bytes.Buffer
	if err := p.Serialize(&alone); err != nil {
		return fmt.Errorf("%w: %w", errBad, err)
	}
	config := &packet.Config{Time: func() time.Time { return now }}
	_, _, err = openpgp.VerifyDetachedSignature(openpgp.EntityList{key}, bytes.NewReader(text), &alone, config)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pgp.ErrKeyExpired):
		return errKeyExpired
	case errors.Is(err, pgp.ErrKeyRevoked):
		return errKeyRevoked
	case errors.Is(err, pgp.ErrSignatureExpired):
		return errExpired
	case errors.Is(err, pgp.ErrSignatureOlderThanKey):
		return errOlder
	default:
		return fmt.Errorf("%w: %w", errBad, err)
	}
}

// signers returns those of the key and its subkeys that have an ID and may sign.
func signers(key *openpgp.Entity, id uint64) ([]openpgp.Key, error) {
	list := openpgp.EntityList{key}
	if len(list.KeysById(id)) == 0 {
		return nil, fmt.Errorf("%w: %016X", errOtherKey, id)
	}
	keys := list.KeysByIdUsage(id, packet.KeyFlagSign)
	if len(keys) == 0 {
		return nil, fmt.Errorf("%w: %016X", errNoSigningKey, id)
	}
	return keys, nil
}

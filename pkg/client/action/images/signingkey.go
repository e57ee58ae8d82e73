package images

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
)

// maxSigningKey bounds a key within a catalogue, bytes; that of a distribution has some two KiB.
const maxSigningKey = 64 << 10

var errPrivateKey = errors.New("it is a private key, which is nobody else's business; export the public one: " +
	"gpg --armor --export")

// SigningKey returns a key out of a file of OpenPGP keys, in text or in binary, as Signature.SigningKey has it, and the
// key's fingerprint. Of several keys the fingerprint says which; "" takes the only one.
func SigningKey(data []byte, fingerprint string) (text, found string, err error) {
	if len(data) > maxKeys {
		return "", "", fmt.Errorf("it has more than %d bytes, and is no key", maxKeys)
	}
	key, err := keyOf(data, fingerprint)
	if err != nil {
		return "", "", err
	}
	var out bytes.Buffer
	w, err := armor.Encode(&out, openpgp.PublicKeyType, nil)
	if err == nil {
		err = errors.Join(key.Serialize(w), w.Close())
	}
	if err != nil {
		return "", "", fmt.Errorf("write the key as text: %w", err)
	}
	text = out.String() + "\n"
	if _, err := signingKey([]byte(text), fingerprint); err != nil { // as it is read next
		return "", "", err
	}
	return text, fmt.Sprintf("%X", key.PrimaryKey.Fingerprint), nil
}

// signingKey reads the key within a catalogue.
func signingKey(text []byte, fingerprint string) (*openpgp.Entity, error) {
	if len(text) > maxSigningKey {
		return nil, fmt.Errorf("it has more than %d bytes; export it without others' signatures: "+
			"gpg --armor --export-options export-minimal --export", maxSigningKey)
	}
	if !armored(text) {
		return nil, errors.New("it is no key as text, which begins with BEGIN PGP PUBLIC KEY BLOCK")
	}
	return keyOf(text, fingerprint)
}

// keyOf returns the key with a fingerprint out of a file of OpenPGP keys, in text or in binary; without a fingerprint
// the only one.
func keyOf(data []byte, fingerprint string) (*openpgp.Entity, error) {
	read := openpgp.ReadKeyRing
	if armored(data) {
		read = openpgp.ReadArmoredKeyRing
	}
	all, err := read(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("it has no OpenPGP keys: %w", err)
	}
	if fingerprint == "" && len(all) != 1 {
		return nil, fmt.Errorf("it has %d keys; name the fingerprint of the one that signs", len(all))
	}
	want, err := hex.DecodeString(fingerprint)
	if err != nil {
		return nil, fmt.Errorf("%q is no fingerprint of a key: 40 or 64 hexadecimal digits", cut(fingerprint))
	}
	for _, key := range all {
		if fingerprint != "" && !bytes.Equal(key.PrimaryKey.Fingerprint, want) {
			continue
		}
		if key.PrivateKey != nil {
			return nil, errPrivateKey
		}
		return key, nil
	}
	return nil, fmt.Errorf("its %d keys have not the fingerprint %s", len(all), strings.ToUpper(fingerprint))
}

// armored reports whether OpenPGP data are text: in binary the first bit is set.
func armored(data []byte) bool { return len(data) > 0 && data[0]&0x80 == 0 }

package credentials

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// maxKeyFile bounds what is read as public keys, bytes.
const maxKeyFile = 256 << 10

// ParseKeys reads public keys as they are in a .pub file or in authorized_keys: one a line, empty lines and comments
// left out. It refuses what is no public key, a private key above all.
func ParseKeys(text string) ([]string, error) {
	if len(text) > maxKeyFile {
		return nil, fmt.Errorf("it has %d bytes; public keys have %d at most", len(text), maxKeyFile)
	}
	if strings.Contains(text, "PRIVATE KEY") {
		return nil, errors.New("this is a private key; give the public one, whose name usually ends in .pub")
	}
	var out []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if identity(line) == "" {
			return nil, errors.New("it has a line that is not a public key, as in `ssh-ed25519 AAAA… comment`")
		}
		out = append(out, line)
	}
	if len(out) == 0 {
		return nil, errors.New("it has no public key")
	}
	return out, nil
}

// keyTypes begin the names of the types of public keys.
var keyTypes = []string{"ssh-", "ecdsa-", "sk-ssh-", "sk-ecdsa-"}

// identity returns a key's type and data, which make a line of authorized_keys the same key as another, whatever its
// options and comment say; empty when the line has no key.
func identity(line string) string {
	fields := strings.Fields(line)
	for i, f := range fields[:max(0, len(fields)-1)] {
		if !slices.ContainsFunc(keyTypes, func(t string) bool { return strings.HasPrefix(f, t) }) {
			continue
		}
		if _, err := base64.StdEncoding.DecodeString(fields[i+1]); err == nil {
			return f + " " + fields[i+1]
		}
	}
	return ""
}

// missing returns those of the keys that a Secret's values do not have yet.
func missing(data map[string][]byte, keys []string) []string {
	have := map[string]bool{}
	for _, value := range data {
		for line := range strings.Lines(string(value)) {
			have[identity(line)] = true
		}
	}
	var out []string
	for _, key := range keys {
		if !have[identity(key)] {
			out = append(out, key)
			have[identity(key)] = true
		}
	}
	return out
}

// without gives the values of a Secret that change when keys are taken out: nil for one that is then empty.
func without(data map[string][]byte, keys []string) map[string][]byte {
	gone := map[string]bool{}
	for _, key := range keys {
		gone[identity(key)] = true
	}
	changed := map[string][]byte{}
	for _, name := range slices.Sorted(maps.Keys(data)) {
		var kept []string
		found := false
		for line := range strings.Lines(string(data[name])) {
			switch line = strings.TrimSpace(line); {
			case line != "" && gone[identity(line)]:
				found = true
			case line != "":
				kept = append(kept, line)
			}
		}
		switch {
		case found && len(kept) == 0:
			changed[name] = nil
		case found:
			changed[name] = []byte(strings.Join(kept, "\n") + "\n")
		}
	}
	return changed
}

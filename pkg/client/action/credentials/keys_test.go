package credentials

import (
	"reflect"
	"strings"
	"testing"
)

const (
	keyA = "ssh-ed25519 QUFBQQ== a@home"
	keyB = "ssh-rsa QkJCQg== b@home"
	// keyAElsewhere is keyA with options and another comment.
	keyAElsewhere = `no-pty,command="uptime" ssh-ed25519 QUFBQQ== a@work`
)

func TestParseKeys(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
		err  string
	}{
		"a file of public keys": {"# mine\n" + keyA + "\n\n  " + keyB + "  \n", []string{keyA, keyB}, ""},
		"options":               {keyAElsewhere, []string{keyAElsewhere}, ""},
		"a private key":         {"-----BEGIN OPENSSH PRIVATE KEY-----\nQUFB\n", nil, "private key"},
		"no key":                {"# nothing\n", nil, "no public key"},
		"not base64":            {"ssh-ed25519 ???", nil, "not a public key"},
		"a type alone":          {"ssh-ed25519", nil, "not a public key"},
		"words":                 {keyA + "\nhello world\n", nil, "not a public key"},
		"too much":              {strings.Repeat("#", maxKeyFile+1), nil, "bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ParseKeys(c.text)
			if !reflect.DeepEqual(got, c.want) || (err != nil) != (c.err != "") {
				t.Fatalf("%q, %v", got, err)
			}
			if err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v, want one about %q", err, c.err)
			}
		})
	}
}

// Keys are the same whatever their options and comments say.
func TestMissing(t *testing.T) {
	data := map[string][]byte{"one": []byte(keyA + "\n")}
	if got := missing(data, []string{keyAElsewhere, keyB, keyB}); !reflect.DeepEqual(got, []string{keyB}) {
		t.Errorf("%q", got)
	}
	if got := missing(nil, []string{keyA}); !reflect.DeepEqual(got, []string{keyA}) {
		t.Errorf("of an empty Secret: %q", got)
	}
}

func TestWithout(t *testing.T) {
	data := map[string][]byte{
		"both":  []byte(keyA + "\n# a comment\n" + keyB + "\n"),
		"one":   []byte(keyAElsewhere),
		"other": []byte(keyB + "\n"),
	}
	want := map[string][]byte{"both": []byte("# a comment\n" + keyB + "\n"), "one": nil}
	if got := without(data, []string{keyA}); !reflect.DeepEqual(got, want) {
		t.Errorf("%q", got)
	}
}

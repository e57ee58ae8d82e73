package images

import (
	"encoding/hex"
	"strings"
	"testing"
)

func TestChecksumOf(t *testing.T) {
	long := strings.Repeat("ab", 64)
	other := strings.Repeat("0", 64)
	for name, test := range map[string]struct{ sums, want, wrong string }{
		"GNU":              {sums: other + "  y.img\n" + sum + "  x.img\n", want: sum},
		"GNU, binary":      {sums: sum + " *x.img", want: sum},
		"GNU, of a folder": {sums: sum + "  ./images/x.img", want: sum},
		"BSD": {
			sums: "# x.img: 5 bytes\nSHA256 (y.img) = " + other + "\nSHA256 (x.img) = " + strings.ToUpper(sum) + "\r\n",
			want: sum,
		},
		"signed":           {sums: "-----BEGIN PGP SIGNED MESSAGE-----\nHash: X\n\n" + sum + "  x.img\n", want: sum},
		"the longest":      {sums: sum + "  x.img\n" + long + "  x.img\n", want: long},
		"bare":             {sums: long + "\n", want: long},
		"two bare":         {sums: sum + "\n" + other, wrong: "it has no SHA-256 or SHA-512 checksum of x.img"},
		"of another":       {sums: sum + "  y.img", wrong: "it has no SHA-256 or SHA-512 checksum of x.img"},
		"of a longer name": {sums: sum + "  ax.img", wrong: "it has no SHA-256 or SHA-512 checksum of x.img"},
		"MD5": {
			sums: strings.Repeat("a", 32) + "  x.img", wrong: "it has no SHA-256 or SHA-512 checksum of x.img",
		},
		"a page": {sums: "<html>", wrong: "it has no SHA-256 or SHA-512 checksum of x.img"},
		"two": {
			sums: sum + "  x.img\nSHA256 (x.img) = " + other, wrong: "it has two different checksums of x.img",
		},
	} {
		got, err := ChecksumOf([]byte(test.sums), "x.img")
		if hex.EncodeToString(got) != test.want || test.wrong == "" != (err == nil) ||
			err != nil && err.Error() != test.wrong {
			t.Errorf("%s: %x, %v; want %s %s", name, got, err, test.want, test.wrong)
		}
	}
}

func FuzzChecksumOf(f *testing.F) {
	f.Add(sum+"  x.img", "x.img")
	f.Add("SHA512 (x) = "+strings.Repeat("a", 128), "x")
	f.Fuzz(func(t *testing.T, sums, file string) {
		got, err := ChecksumOf([]byte(sums), file)
		if err == nil && !strings.Contains(strings.ToLower(sums), hex.EncodeToString(got)) {
			t.Errorf("%x is not in the file", got)
		}
	})
}

package images

import (
	"fmt"
	"regexp"
	"strings"
)

// maxSums bounds a file of checksums, bytes; Ubuntu's and Debian's have some kilobytes.
const maxSums = 1 << 20

// The lines of files of checksums: `HEX  FILE` or `HEX *FILE` of GNU coreutils, and `SHA256 (FILE) = HEX` of BSD.
var (
	gnuLine = regexp.MustCompile(`^\\?([0-9A-Fa-f]{64}|[0-9A-Fa-f]{128})(?:[ \t]+[ *]?(.+))?$`)
	bsdLine = regexp.MustCompile(`^SHA(?:256|512) \((.+)\) = ([0-9A-Fa-f]{64}|[0-9A-Fa-f]{128})$`)
)

// ChecksumOf returns the checksum of a file out of a file of checksums, as sha256sum and sha512sum write and BSDs do,
// also within a signed message. A file that has one checksum and no name is the checksum of the file beside it. If it
// has several of the file, they must agree; the longest is returned.
func ChecksumOf(sums []byte, file string) ([]byte, error) {
	var named, bare []string
	for line := range strings.Lines(string(sums)) {
		line = strings.TrimRight(line, "\r\n \t")
		if m := bsdLine.FindStringSubmatch(line); m != nil {
			if base(m[1]) == file {
				named = append(named, strings.ToLower(m[2]))
			}
			continue
		}
		m := gnuLine.FindStringSubmatch(line)
		switch {
		case m == nil:
		case m[2] == "":
			bare = append(bare, strings.ToLower(m[1]))
		case base(m[2]) == file:
			named = append(named, strings.ToLower(m[1]))
		}
	}
	if len(named) == 0 && len(bare) == 1 {
		named = bare
	}
	longest := ""
	for _, sum := range named {
		switch {
		case len(sum) > len(longest):
			longest = sum
		case len(sum) == len(longest) && sum != longest:
			return nil, fmt.Errorf("it has two different checksums of %s", file)
		}
	}
	if longest == "" {
		return nil, fmt.Errorf("it has no SHA-256 or SHA-512 checksum of %s", file)
	}
	return ParseChecksum(longest)
}

func base(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

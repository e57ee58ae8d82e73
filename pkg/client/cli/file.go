package cli

import (
	"fmt"
	"io"
	"os"
)

// MaxFile is the most that the file of one object has, bytes: the server takes no more.
const MaxFile = 3 << 20

// ReadFile reads the file that a flag names; "-" is stdin. tooLarge ends the message about one that has more than
// MaxFile bytes.
func ReadFile(stdin io.Reader, flag, path, tooLarge string) ([]byte, error) {
	in := stdin
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return nil, UsageErrorf("--%s: %s", flag, err)
		}
		defer file.Close()
		in = file
	}
	data, err := io.ReadAll(io.LimitReader(in, MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if len(data) > MaxFile {
		return nil, UsageErrorf("--%s: %s has more than %d bytes%s", flag, path, MaxFile, tooLarge)
	}
	return data, nil
}

package upload

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// dataOf returns the stretches of a file that have data, in order. A file system that knows no holes has one.
func dataOf(file *os.File, size int64) ([]extent, error) {
	var out []extent
	for at := int64(0); at < size; {
		begin, err := unix.Seek(int(file.Fd()), at, unix.SEEK_DATA)
		switch {
		case errors.Is(err, unix.ENXIO): // all that follows is a hole
			return out, nil
		case errors.Is(err, unix.EINVAL):
			return []extent{{0, size}}, nil
		case err != nil:
			return nil, err
		}
		end, err := unix.Seek(int(file.Fd()), begin, unix.SEEK_HOLE)
		if err != nil {
			return nil, err
		}
		out = append(out, extent{begin, end})
		at = end
	}
	return out, nil
}

//go:build !linux

package upload

import "os"

// dataOf returns the stretches of a file that may have data: here nobody says where its holes are.
func dataOf(_ *os.File, size int64) ([]extent, error) { return []extent{{0, size}}, nil }

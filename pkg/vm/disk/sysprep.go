package disk

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	v1 "kubevirt.io/api/core/v1"
)

const (
	// sysprepLabel is the image's, as KubeVirt's.
	sysprepLabel = "unattendCD"
	// maxSysprepFiles is the most that fits into the image's one directory.
	maxSysprepFiles = 16
)

// answerFiles are the names that Windows looks for; a file with one of them, in any case, must exist.
var answerFiles = []string{"autounattend.xml", "unattend.xml"}

// lookSysprep reads the ConfigMap or Secret of a sysprep volume.
func lookSysprep(v *v1.Volume, dirs Dirs) (Facts, error) {
	dir := path.Join(dirs.Secrets, v.Name)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return Facts{}, fmt.Errorf("read the answer files: %w", err)
	}
	files := map[string][]byte{}
	for _, entry := range entries {
		name := entry.Name()
		if strings.HasPrefix(name, "..") {
			continue // how the kubelet swaps all files at once
		}
		if len(files) == maxSysprepFiles {
			return Facts{},
				invalidf("there are more than %d files; the answer files are all that is needed", maxSysprepFiles)
		}
		if files[name], err = readBounded(path.Join(dir, name)); err != nil {
			return Facts{}, fmt.Errorf("read the answer file %s: %w", name, err)
		}
	}
	for name := range files {
		if slices.Contains(answerFiles, strings.ToLower(name)) {
			return Facts{Files: files}, nil
		}
	}
	return Facts{},
		invalidf("there is no answer file; the ConfigMap or Secret needs the key Autounattend.xml or Unattend.xml")
}

// readBounded reads a file of at most what a ConfigMap or Secret may hold.
func readBounded(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSecret))
	return data, errors.Join(err, f.Close())
}

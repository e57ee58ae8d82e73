package foreign

import (
	"context"
	"crypto/sha1" //nolint:gosec // a manifest's checksum shows damage
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// manifest has the checksums of an OVF's files: lines such as SHA256(disk.vmdk)= 0123…
type manifest struct {
	sums map[string]checksum
}

type checksum struct {
	algorithm string
	sum       string
}

var algorithms = map[string]func() hash.Hash{"SHA1": sha1.New, "SHA256": sha256.New, "SHA512": sha512.New}

var manifestLine = regexp.MustCompile(`^([A-Za-z0-9-]+)\s*\((.+)\)\s*=\s*([0-9A-Fa-f]+)$`)

// parseManifest reads a manifest from a stranger.
func parseManifest(text []byte) (*manifest, error) {
	m := &manifest{sums: map[string]checksum{}}
	for number, line := range strings.Split(string(text), "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		parts := manifestLine.FindStringSubmatch(line)
		if parts == nil {
			return nil, fmt.Errorf("line %d is no checksum of a file: %.60q", number+1, line)
		}
		algorithm := strings.ReplaceAll(strings.ToUpper(parts[1]), "-", "")
		name, sum := parts[2], strings.ToLower(parts[3])
		digest := algorithms[algorithm]
		switch {
		case digest == nil:
			return nil, fmt.Errorf("line %d has a checksum of %.20q, and only SHA1, SHA256 and SHA512 are known",
				number+1, parts[1])
		case len(sum) != 2*digest().Size():
			return nil, fmt.Errorf("line %d has a checksum of %d digits, where %s has %d", number+1, len(sum),
				algorithm, 2*digest().Size())
		}
		if err := checkPath(name); err != nil {
			return nil, fmt.Errorf("line %d: %w", number+1, err)
		}
		if other, has := m.sums[name]; has && other != (checksum{algorithm, sum}) {
			return nil, fmt.Errorf("line %d: %s is there twice", number+1, name)
		}
		if m.sums[name] = (checksum{algorithm, sum}); len(m.sums) > maxMembers {
			return nil, fmt.Errorf("it has more than %d files", maxMembers)
		}
	}
	if len(m.sums) == 0 {
		return nil, errors.New("it has no checksum")
	}
	return m, nil
}

// verify reads a file to its end and compares its checksum.
func (m *manifest) verify(name string, in io.Reader) error {
	want, has := m.sums[name]
	if !has {
		return fmt.Errorf("%s is not in the manifest, which has the checksums of all files; take the file from where "+
			"it came from again, or remove the manifest if you trust what is there", name)
	}
	sum := algorithms[want.algorithm]()
	if _, err := io.Copy(sum, in); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != want.sum {
		return fmt.Errorf("%s has the %s checksum %s, and the manifest says %s; take the file from where it came from "+
			"again", name, want.algorithm, got, want.sum)
	}
	return nil
}

// Verify reads the disks and whatever else the manifest lists, and fails for a file that is not as the manifest says.
// It notes the checksum of each disk, by which the upload is verified.
func (f *File) Verify(ctx context.Context, show func(name string, done, total int64)) error {
	done := map[string]bool{f.described: true}
	for i := range f.images {
		image := &f.images[i]
		if image.file == "" {
			continue
		}
		sum := sha256.New()
		in := io.TeeReader(&shown{ctx: ctx, in: image.reader(), name: image.file, total: image.size, show: show}, sum)
		if err := f.verifyOne(image.file, in); err != nil {
			return err
		}
		image.sha256 = hex.EncodeToString(sum.Sum(nil))
		done[image.file] = true
	}
	for _, name := range slices.Sorted(maps.Keys(f.others)) {
		if done[name] {
			continue
		}
		in := f.others[name]
		err := f.verifyOne(name, &shown{ctx: ctx, in: in.reader(), name: name, total: in.size, show: show})
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *File) verifyOne(name string, in io.Reader) error {
	if f.manifest != nil {
		return f.manifest.verify(name, in)
	}
	if _, err := io.Copy(io.Discard, in); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	return nil
}

func (c content) reader() io.Reader { return io.NewSectionReader(c.ReaderAt, 0, c.size) }

// shown is a file that is read, until somebody interrupts it, and says how far it is.
type shown struct {
	ctx         context.Context //nolint:containedctx // a reader has no other way to be interrupted
	in          io.Reader
	name        string
	done, total int64
	show        func(name string, done, total int64)
}

func (s *shown) Read(into []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := s.in.Read(into)
	s.done += int64(n)
	s.show(s.name, s.done, s.total)
	return n, err
}

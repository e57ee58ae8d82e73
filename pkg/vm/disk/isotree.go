package disk

import (
	"encoding/binary"
	"slices"
	"strings"
)

// Bounds of an image: the files' sum in bytes, which cloud-init's data is far below; how long a part of a name may
// be, the most that Windows reads of Joliet; and how many parts a name has, the most that ISO 9660 knows without
// relocating directories.
const (
	maxImage    = 64 << 20
	maxIsoName  = 103
	maxIsoDepth = 7
	// maxFiles is the most files.
	maxFiles = 4096
)

// isoTree is the image's directories, in the order of the path tables: by depth, then by name. The first is
// the root, its own parent.
type isoTree struct {
	dirs    []*isoDir
	sectors uint32
}

// isoDir is a directory: its name, its place in the path tables from 1, and its first sector and its size in bytes in
// each tree.
type isoDir struct {
	name     string
	number   uint16
	parent   *isoDir
	children []*isoDir
	files    []isoFile
	sector   [2]uint32
	size     [2]uint32
}

// isoFile is one file and its first sector.
type isoFile struct {
	name   string
	sector uint32
	data   []byte
}

// newTree sorts the files into directories, and gives all of them sectors.
func newTree(files map[string][]byte) (*isoTree, error) {
	root := &isoDir{}
	root.parent = root
	if len(files) > maxFiles {
		return nil, invalidf("there are %d files; %d is the most on one disk", len(files), maxFiles)
	}
	paths := make([]string, 0, len(files))
	total := 0
	for path, data := range files {
		paths = append(paths, path)
		if total += len(data); total > maxImage {
			return nil, invalidf("the files are larger than %d MiB", maxImage>>20)
		}
	}
	slices.Sort(paths)
	for _, path := range paths {
		if err := root.add(path, files[path]); err != nil {
			return nil, err
		}
	}
	t := &isoTree{dirs: []*isoDir{root}}
	for i := 0; i < len(t.dirs); i++ {
		t.dirs = append(t.dirs, t.dirs[i].children...)
	}
	t.place()
	return t, nil
}

// add puts a file at its path below d.
func (d *isoDir) add(path string, data []byte) error {
	parts := strings.Split(path, "/")
	if len(parts) > maxIsoDepth {
		return invalidf("file name %q has more than %d parts", path, maxIsoDepth)
	}
	for i, part := range parts {
		if part == "" || part == "." || part == ".." || len(part) > maxIsoName {
			return invalidf("file name %q does not fit an ISO image, where a name has 1 to %d characters",
				path, maxIsoName)
		}
		if i == len(parts)-1 {
			break
		}
		if slices.ContainsFunc(d.files, func(f isoFile) bool { return f.name == part }) {
			return invalidf("%q is a file and a directory", strings.Join(parts[:i+1], "/"))
		}
		d = d.child(part)
	}
	name := parts[len(parts)-1]
	if slices.ContainsFunc(d.children, func(c *isoDir) bool { return c.name == name }) {
		return invalidf("%q is a file and a directory", path)
	}
	d.files = append(d.files, isoFile{name: name, data: data})
	return nil
}

// child returns the directory of that name in d, made when it is not there.
func (d *isoDir) child(name string) *isoDir {
	at, found := slices.BinarySearchFunc(d.children, name,
		func(c *isoDir, name string) int { return strings.Compare(c.name, name) })
	if !found {
		d.children = slices.Insert(d.children, at, &isoDir{name: name, parent: d})
	}
	return d.children[at]
}

// place gives each directory its number and its sectors in both trees, and then the files theirs.
func (t *isoTree) place() {
	next := uint32(sectorRoot)
	for i, d := range t.dirs {
		d.number = uint16(i + 1) //nolint:gosec // pathTable bounds their number
		for _, kind := range []treeKind{plainTree, jolietTree} {
			d.sector[kind], d.size[kind] = next, d.extent(kind)
			next += d.size[kind] / isoSector
		}
	}
	for _, d := range t.dirs {
		for i := range d.files {
			d.files[i].sector = next
			next += uint32((len(d.files[i].data) + isoSector - 1) / isoSector)
		}
	}
	t.sectors = next + padding
}

// records returns a directory's content: itself, its parent, and what is in it, by name. No record spans two sectors.
func (d *isoDir) records(kind treeKind) []byte {
	var out []byte
	for _, record := range d.entries(kind) {
		if room := isoSector - len(out)%isoSector; len(record) > room {
			out = append(out, make([]byte, room)...)
		}
		out = append(out, record...)
	}
	return out
}

// extent returns the size of the directory's records, bytes, in whole sectors. It does not depend on where anything
// lies.
func (d *isoDir) extent(kind treeKind) uint32 {
	return uint32((len(d.records(kind)) + isoSector - 1) / isoSector * isoSector) //nolint:gosec // maxFiles bounds it
}

func (d *isoDir) entries(kind treeKind) [][]byte {
	use := func(rock ...[]byte) []byte {
		if kind == jolietTree {
			return nil
		}
		return slices.Concat(rock...)
	}
	self := [][]byte{suspPX(d.links())}
	if d.parent == d {
		self = [][]byte{suspSP, suspER, suspPX(d.links())}
	}
	out := [][]byte{
		dirRecord("\x00", d.sector[kind], d.size[kind], true, use(self...)),
		dirRecord("\x01", d.parent.sector[kind], d.parent.size[kind], true, use(suspPX(d.parent.links()))),
	}
	dirs, files := d.children, d.files
	for len(dirs)+len(files) > 0 {
		if len(files) == 0 || (len(dirs) > 0 && dirs[0].name < files[0].name) {
			c := dirs[0]
			out = append(out,
				dirRecord(c.id(kind), c.sector[kind], c.size[kind], true, use(suspPX(c.links()), suspNM(c.name))))
			dirs = dirs[1:]
			continue
		}
		f := files[0]
		id := plainName(f.name)
		if kind == jolietTree {
			id = ucs2(f.name)
		}
		out = append(out, dirRecord(id, f.sector, uint32(len(f.data)), false, use(suspPX(1), suspNM(f.name))))
		files = files[1:]
	}
	return out
}

// links returns the number of links to it: its name, its own dot, and one from each directory in it.
func (d *isoDir) links() uint32 { return 2 + uint32(len(d.children)) }

// id returns its identifier in a tree; the root's is a zero byte.
func (d *isoDir) id(kind treeKind) string {
	switch {
	case d.parent == d:
		return "\x00"
	case kind == jolietTree:
		return ucs2(d.name)
	}
	return shortened(plainLetters(d.name, false), d.name)
}

// pathTable lists all directories (ECMA-119, 9.4).
func (t *isoTree) pathTable(order binary.AppendByteOrder, kind treeKind) ([]byte, error) {
	var out []byte
	for _, d := range t.dirs {
		id := d.id(kind)
		out = append(out, byte(len(id)), 0)
		out = order.AppendUint32(out, d.sector[kind])
		out = order.AppendUint16(out, d.parent.number)
		out = append(out, id...)
		if len(id)%2 == 1 {
			out = append(out, 0)
		}
	}
	if len(out) > isoSector {
		return nil, invalidf("too many directories for an ISO image: %d", len(t.dirs))
	}
	return out, nil
}

// Package capabilities keeps libvirt's cache of QEMU capabilities for the launchers of a node. Probing
// QEMU costs a launcher seconds; what it finds depends on the image and the node only. So virt-handler probes once, and
// every launcher gets the result before its libvirt asks.
//
// A cache decides what QEMU runs with, so it never comes from a pod, which a guest may have taken over. virt-handler
// has the launcher's image mounted, where nobody has ever run anything, and runs libvirtd from it in a sandbox:
//
//	Prober   when to probe, for which kinds of launchers, and who waits for it
//	Sandbox  the processes that do: namespaces of their own, the image as root, no rights
//	Cache    the files on the node's disk, and their copies in launchers
//
// libvirt holds a cached file for valid while the change times of QEMU and libvirtd stay the same, which is when the
// image was unpacked: the key has them, so a node's cache never mixes images, not even two of one name. A node that
// boots, perhaps with another kernel, starts anew. A launcher of another image than the one mounted here, as an older
// one after an upgrade, has no cache and probes by itself, as does one whose libvirt rejects its copy for another
// reason; it only takes longer.
package capabilities

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/pkg/names"
)

const (
	maxFiles = 8
	maxBytes = 2 << 20 // a file of QEMU 10 has some 150 KiB
)

var fileName = regexp.MustCompile(`^[0-9a-f]{40,64}\.xml$`)

// binaries whose times are part of the key; those that an image has not are left out.
var binaries = []string{
	"/usr/bin/qemu-system-x86_64", "/usr/bin/qemu-system-aarch64", "/usr/libexec/qemu-kvm", "/usr/sbin/libvirtd",
}

// Variant names the devices of the node that a launcher has and that change what its QEMU can do.
type Variant struct{ KVM, SEV bool }

// Key names the cache of one variant of one image on one node.
type Key struct {
	hash string
	// ctimes are the times of change of the binaries, in seconds.
	ctimes []int64
}

// NewKey makes the key of launchers of a variant whose binaries are as stat sees them in the image or the container. A
// container that lies about them has the cache of another image, which libvirt there does not believe.
func NewKey(v Variant, stat func(path string) (unix.Stat_t, error)) (Key, error) {
	h := sha256.New()
	fmt.Fprintf(h, "2 %t %t\n", v.KVM, v.SEV) // 1 had no domain capabilities
	var key Key
	for _, b := range binaries {
		s, err := stat(b)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return Key{}, err
		}
		fmt.Fprintf(h, "%s %d %d.%09d\n", b, s.Size, s.Ctim.Sec, s.Ctim.Nsec)
		key.ctimes = append(key.ctimes, s.Ctim.Sec)
	}
	if len(key.ctimes) == 0 {
		return Key{}, errors.New("the launcher's image has no QEMU at a known path")
	}
	key.hash = hex.EncodeToString(h.Sum(nil)[:16])
	return key, nil
}

// Cache is a node's caches, one directory a key below Dir/Boot.
type Cache struct {
	Dir string
	// Boot identifies the node's boot; caches of other boots are removed.
	Boot string
	mu   sync.Mutex
}

func (c *Cache) path(key Key) string { return filepath.Join(c.Dir, c.Boot, key.hash) }

// Install copies the node's cache into a launcher's run volume, owned by the launcher's user, and
// reports whether there was one. Files that the launcher has already stay.
func (c *Cache) Install(key Key, run *os.Root) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	entries, err := os.ReadDir(c.path(key))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read capability cache: %w", err)
	}
	if err := makeDirs(run); err != nil {
		return false, err
	}
	for _, e := range entries {
		if e.Name() == names.DomainCapabilities {
			continue // is not libvirt's own
		}
		data, err := os.ReadFile(filepath.Join(c.path(key), e.Name()))
		if err != nil {
			return false, fmt.Errorf("read capability cache: %w", err)
		}
		if err := install(run, path.Join(names.CapabilityCacheDir, e.Name()), data); err != nil {
			return false, fmt.Errorf("install capability cache: %w", err)
		}
	}
	return len(entries) > 0, nil
}

func makeDirs(run *os.Root) error {
	dir := ""
	for _, part := range strings.Split(names.CapabilityCacheDir, "/") {
		dir = path.Join(dir, part)
		err := run.Mkdir(dir, 0o700)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err == nil {
			err = run.Lchown(dir, names.User, names.Group)
		}
		if err != nil {
			return fmt.Errorf("make %s in the run volume: %w", dir, err)
		}
	}
	return nil
}

func install(run *os.Root, name string, data []byte) error {
	f, err := run.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Chown(names.User, names.Group), f.Close())
}

// Has reports whether the node has a cache for the key.
func (c *Cache) Has(key Key) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := os.Stat(c.path(key))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for the capability cache: %w", err)
	}
	return true, nil
}

// Domain returns libvirt's domain capabilities of the key's QEMU; fs.ErrNotExist means that there are none.
func (c *Cache) Domain(key Key) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	data, err := os.ReadFile(filepath.Join(c.path(key), names.DomainCapabilities))
	if err != nil {
		return nil, fmt.Errorf("read domain capabilities: %w", err)
	}
	return data, nil
}

// Store makes files, by their names, the node's cache for the key.
func (c *Cache) Store(key Key, files map[string][]byte) error {
	if len(files) == 0 || len(files) > maxFiles {
		return fmt.Errorf("a capability cache has 1 to %d files, not %d", maxFiles, len(files))
	}
	for name, data := range files {
		if len(data) > maxBytes {
			return fmt.Errorf("capability cache %s: %d bytes are more than %d", name, len(data), maxBytes)
		}
		if name == names.DomainCapabilities {
			continue // who reads it checks it
		}
		if !fileName.MatchString(name) {
			return fmt.Errorf("a capability cache has no file %q", name)
		}
		if err := check(key, data); err != nil {
			return fmt.Errorf("capability cache %s: %w", name, err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.store(key, files)
}

// store keeps the files in one step, so that a crash leaves nothing half made where Install looks.
func (c *Cache) store(key Key, files map[string][]byte) error {
	if err := os.MkdirAll(filepath.Dir(c.path(key)), 0o700); err != nil {
		return fmt.Errorf("make capability cache: %w", err)
	}
	temporary, err := os.MkdirTemp(filepath.Dir(c.path(key)), ".new-")
	if err != nil {
		return fmt.Errorf("make capability cache: %w", err)
	}
	for name, data := range files {
		if err = os.WriteFile(filepath.Join(temporary, name), data, 0o600); err != nil {
			break
		}
	}
	if err == nil {
		err = os.RemoveAll(c.path(key))
	}
	if err == nil {
		err = os.Rename(temporary, c.path(key))
	}
	if err != nil {
		return fmt.Errorf("write capability cache: %w", errors.Join(err, os.RemoveAll(temporary)))
	}
	return c.forgetOtherBoots()
}

func (c *Cache) forgetOtherBoots() error {
	if c.Boot == "" {
		return nil
	}
	entries, err := os.ReadDir(c.Dir)
	if err != nil {
		return fmt.Errorf("list capability caches: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if e.Name() != c.Boot {
			errs = append(errs, os.RemoveAll(filepath.Join(c.Dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// check makes sure that data is libvirt's description of a QEMU with one of the key's times.
func check(key Key, data []byte) error {
	decoder := xml.NewDecoder(bytes.NewReader(data))
	var open []string
	ctime := ""
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		switch t := token.(type) {
		case xml.StartElement:
			open = append(open, t.Name.Local)
			if len(open) == 1 && t.Name.Local != "qemuCaps" {
				return fmt.Errorf("<%s> instead of <qemuCaps>", t.Name.Local)
			}
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			if len(open) == 2 && open[1] == "qemuctime" {
				ctime += string(t)
			}
		case xml.Directive:
			return errors.New("has a document type")
		}
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(ctime), 10, 64)
	if err != nil {
		return errors.New("does not say when QEMU was changed")
	}
	if !slices.Contains(key.ctimes, seconds) {
		return fmt.Errorf("is about a QEMU changed at %d, which is not the launcher's", seconds)
	}
	return nil
}

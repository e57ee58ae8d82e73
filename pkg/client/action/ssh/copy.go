package ssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
)

const (
	// maxDepth bounds how deep a copy goes: links may make circles.
	maxDepth = 100
	// parallel is how many requests are under way for one file.
	parallel = 32
)

// Copier copies files between this machine and a guest, by sftp.
type Copier struct {
	// Recursive copies directories; else they are an error.
	Recursive bool
	// Preserve keeps times and all of the mode. Without it a new file has the mode of its source as far as
	// the umask allows.
	Preserve bool
	// Progress, which may be nil, is called with how far a file is, in bytes, by the goroutines that copy, one file
	// at a time.
	Progress func(name string, done, total int64)

	sftp *sftp.Client
}

// servers is where distributions keep sftp's server, for guests whose ssh server does not know it.
const servers = `for s in /usr/lib/openssh/sftp-server /usr/libexec/openssh/sftp-server /usr/lib/ssh/sftp-server /usr/libexec/sftp-server /usr/lib/sftp-server; do
	[ -x $s ] && exec $s
done
exit 127`

// Open starts sftp in the guest. Close ends it.
func (c *Copier) Open(client *ssh.Client) (err error) {
	options := []sftp.ClientOption{sftp.UseConcurrentReads(true), sftp.UseConcurrentWrites(true)}
	if c.sftp, err = sftp.NewClient(client, options...); err == nil {
		return nil
	}
	session, serr := client.NewSession()
	if serr != nil {
		return fmt.Errorf("open a session: %w", serr)
	}
	in, inErr := session.StdinPipe()
	out, outErr := session.StdoutPipe()
	if serr = errors.Join(inErr, outErr); serr == nil {
		serr = session.Start(servers)
	}
	if serr == nil {
		c.sftp, serr = sftp.NewClientPipe(out, in, options...)
	}
	if serr != nil {
		session.Close()
		return fmt.Errorf("the guest offers no sftp, which copies need (package openssh-sftp-server in many of "+
			"them): %w", err)
	}
	return nil
}

// Close ends sftp.
func (c *Copier) Close() error { return c.sftp.Close() }

// Upload copies local files to a path in the guest, which is a directory when there are several sources. It fails with
// ErrLost when the connection ends; how far it came nobody knows.
func (c *Copier) Upload(ctx context.Context, sources []string, to string) error {
	stop := context.AfterFunc(ctx, func() { c.sftp.Close() })
	defer stop()
	to = home(to)
	info, err := c.sftp.Stat(to)
	isDir := err == nil && info.IsDir()
	if !isDir && (len(sources) > 1 || strings.HasSuffix(to, "/") && !c.Recursive) {
		return fmt.Errorf("%s in the guest is not a directory", to)
	}
	var failed []error
	for _, source := range sources {
		target := to
		if isDir {
			target = path.Join(to, filepath.Base(filepath.Clean(source)))
		}
		err := c.put(ctx, source, target, 0)
		failed = append(failed, err)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if c.lost(err) {
			return fmt.Errorf("%s: %w before it was copied", source, ErrLost)
		}
	}
	return errors.Join(failed...)
}

// lost reports whether a copy failed since the connection ended, with which everything that is left would fail too.
// Errors tell that in many ways, by where they met it; a server that is there answers.
func (c *Copier) lost(err error) bool {
	if err == nil {
		return false
	}
	var answer *sftp.StatusError
	_, err = c.sftp.Getwd()
	return err != nil && !errors.As(err, &answer)
}

// home makes a path of scp one of sftp: relative paths are relative to the home directory.
func home(name string) string {
	if name == "~" || name == "" {
		return "."
	}
	return strings.TrimPrefix(name, "~/")
}

func (c *Copier) put(ctx context.Context, from, to string, depth int) error {
	info, err := os.Stat(from)
	switch {
	case err != nil:
		return err
	case info.IsDir() && !c.Recursive:
		return fmt.Errorf("%s is a directory; copy it with --recursive", from)
	case info.IsDir():
		return c.putDir(ctx, from, to, info, depth)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file", from)
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := c.sftp.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return fmt.Errorf("%s in the guest: %w", to, err)
	}
	_, err = out.ReadFromWithConcurrency(c.counted(in, path.Base(to), info.Size()), parallel)
	if err == nil {
		err = out.Chmod(info.Mode().Perm())
	}
	if err = errors.Join(err, out.Close()); err == nil && c.Preserve {
		err = c.sftp.Chtimes(to, accessTime(info), info.ModTime())
	}
	if err != nil {
		return fmt.Errorf("%s in the guest: %w", to, err)
	}
	return nil
}

func (c *Copier) putDir(ctx context.Context, from, to string, info fs.FileInfo, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%s: more than %d directories deep; a link may lead back", from, maxDepth)
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	if there, err := c.sftp.Stat(to); err != nil || !there.IsDir() {
		if err := c.sftp.Mkdir(to); err != nil {
			return fmt.Errorf("make directory %s in the guest: %w", to, err)
		}
	}
	var failed []error
	for _, entry := range entries {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		failed = append(failed, c.put(ctx, filepath.Join(from, entry.Name()), path.Join(to, entry.Name()), depth+1))
	}
	if c.Preserve {
		failed = append(failed, c.sftp.Chmod(to, info.Mode().
			Perm()), c.sftp.Chtimes(to, accessTime(info), info.ModTime()))
	}
	return errors.Join(failed...)
}

// Download copies files of the guest to a local path, which is a directory when there are several sources. A source may
// have wildcards. It fails with ErrLost as Upload does.
func (c *Copier) Download(ctx context.Context, sources []string, to string) error {
	stop := context.AfterFunc(ctx, func() { c.sftp.Close() })
	defer stop()
	found, err := c.glob(sources)
	if err != nil {
		return err
	}
	info, err := os.Stat(to)
	isDir := err == nil && info.IsDir()
	if !isDir && len(found) > 1 {
		return fmt.Errorf("%s is not a directory", to)
	}
	var failed []error
	for _, source := range found {
		target := to
		if isDir {
			name := path.Base(path.Clean(source))
			if name == ".." || name == "/" || name == "." {
				if name, err = c.realName(source); err != nil {
					return err
				}
			}
			target = filepath.Join(to, name)
		}
		err := c.get(ctx, source, target, 0)
		failed = append(failed, err)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if c.lost(err) {
			return fmt.Errorf("%s in the guest: %w before it was copied", source, ErrLost)
		}
	}
	return errors.Join(failed...)
}

// realName returns the last part of a path such as `.`, as the guest resolves it; the guest is not trusted.
func (c *Copier) realName(source string) (string, error) {
	real, err := c.sftp.RealPath(source)
	if err != nil {
		return "", fmt.Errorf("%s in the guest: %w", source, err)
	}
	name := path.Base(real)
	if !plain(name) {
		return "", fmt.Errorf("%s in the guest has no name; name the directory to copy it to", source)
	}
	return name, nil
}

// plain reports whether a name that a guest says stays in its directory.
func plain(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, `/\`) && filepath.IsLocal(name)
}

func (c *Copier) glob(sources []string) ([]string, error) {
	var out []string
	for _, source := range sources {
		source = home(source)
		if !strings.ContainsAny(source, "*?[") {
			out = append(out, source)
			continue
		}
		if _, err := c.sftp.Lstat(source); err == nil {
			out = append(out, source)
			continue
		}
		found, err := c.sftp.Glob(source)
		if err != nil {
			return nil, fmt.Errorf("%s in the guest: %w", source, err)
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("%s in the guest: %w", source, fs.ErrNotExist)
		}
		for _, name := range found {
			if !plain(path.Base(name)) {
				return nil, fmt.Errorf("the guest offers a file called %q", name)
			}
		}
		out = append(out, found...)
	}
	return out, nil
}

func (c *Copier) get(ctx context.Context, from, to string, depth int) error {
	info, err := c.sftp.Stat(from)
	switch {
	case err != nil:
		return fmt.Errorf("%s in the guest: %w", from, err)
	case info.IsDir() && !c.Recursive:
		return fmt.Errorf("%s in the guest is a directory; copy it with --recursive", from)
	case info.IsDir():
		return c.getDir(ctx, from, to, info, depth)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s in the guest is not a regular file", from)
	}
	in, err := c.sftp.Open(from)
	if err != nil {
		return fmt.Errorf("%s in the guest: %w", from, err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, info.Mode().Perm())
	if err != nil {
		return err
	}
	if _, err = in.WriteTo(c.counting(out, path.Base(from), info.Size())); err != nil {
		err = fmt.Errorf("%s in the guest: %w", from, err)
	}
	err = errors.Join(err, out.Close())
	if err != nil || !c.Preserve {
		return err
	}
	return preserve(to, info)
}

func preserve(name string, info fs.FileInfo) error {
	accessed := info.ModTime()
	if stat, ok := info.Sys().(*sftp.FileStat); ok {
		accessed = stat.AccessTime()
	}
	return errors.Join(os.Chmod(name, info.Mode().Perm()), os.Chtimes(name, accessed, info.ModTime()))
}

func (c *Copier) getDir(ctx context.Context, from, to string, info fs.FileInfo, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%s in the guest: more than %d directories deep; a link may lead back", from, maxDepth)
	}
	entries, err := c.sftp.ReadDirContext(ctx, from)
	if err != nil {
		return fmt.Errorf("%s in the guest: %w", from, err)
	}
	// Its owner must be able to fill it.
	if err := os.Mkdir(to, info.Mode().Perm()|0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	var failed []error
	for _, entry := range entries {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !plain(entry.Name()) {
			failed = append(failed, fmt.Errorf("the guest offers a file called %q", entry.Name()))
			continue
		}
		failed = append(failed, c.get(ctx, path.Join(from, entry.Name()), filepath.Join(to, entry.Name()), depth+1))
	}
	if c.Preserve {
		failed = append(failed, preserve(to, info))
	}
	return errors.Join(failed...)
}

// counted returns a reader that calls Progress.
func (c *Copier) counted(r io.Reader, name string, total int64) io.Reader {
	if c.Progress == nil {
		return r
	}
	c.Progress(name, 0, total)
	return &counter{c: c, r: r, name: name, total: total}
}

// counting returns a writer that calls Progress.
func (c *Copier) counting(w io.Writer, name string, total int64) io.Writer {
	if c.Progress == nil {
		return w
	}
	c.Progress(name, 0, total)
	return &counter{c: c, w: w, name: name, total: total}
}

type counter struct {
	c           *Copier
	r           io.Reader
	w           io.Writer
	name        string
	done, total int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.add(n)
	return n, err
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.add(n)
	return n, err
}

func (c *counter) add(n int) {
	c.done += int64(n)
	c.c.Progress(c.name, c.done, c.total)
}

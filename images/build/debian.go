package main

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// keyring holds the keys that sign Debian's archive.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// mirrors are URLs of a Debian archive and of its security archive.
type mirrors struct{ Main, Security string }

// debian is what a set of packages unpacks to.
type debian struct {
	Files tree
	// Manifest has a line a package: name, version, architecture, SHA-256 of the .deb; sorted.
	Manifest string
}

// packageList is a file that names a Debian suite and packages of it.
type packageList struct {
	Suite    string
	Packages []string
}

// readPackages reads such a file: words with comments, the first two being `suite NAME`.
func readPackages(name string) (packageList, error) {
	words, err := readList(name)
	if err != nil {
		return packageList{}, err
	}
	if len(words) < 3 || words[0] != "suite" {
		return packageList{}, fmt.Errorf("%s: must begin with `suite` and its name, and then name packages", name)
	}
	return packageList{words[1], words[2:]}, nil
}

// fetchDebian unpacks packages and everything they depend on. No maintainer script runs, so
// nothing of this machine gets into the result, and what the scripts would have set up (users,
// caches, alternatives) is not there. Hooks run in the new root once it is unpacked. The result is cached by the names
// of the packages, the suite and the hooks.
func (b *build) fetchDebian(ctx context.Context, l packageList, hooks ...string) (*debian, error) {
	key := digest("debian 1", l.Suite, b.Mirrors.Main, b.Mirrors.Security, strings.Join(l.Packages, "\n"),
		strings.Join(hooks, "\n"))
	cached := filepath.Join(b.Cache, "debian-"+key[:16]+".tar")
	if _, err := os.Stat(cached); err != nil || b.Refresh {
		flags := []string{"--variant=extract"}
		for _, hook := range append([]string{manifestHook}, hooks...) {
			flags = append(flags, "--extract-hook="+hook)
		}
		err := b.mmdebstrap(ctx, l, cached, flags...)
		if err != nil {
			return nil, err
		}
	}
	f, err := os.Open(cached)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	files, err := readTree(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cached, err)
	}
	manifest, ok := files["packages"]
	if !ok {
		return nil, fmt.Errorf("%s has no list of packages; remove it and try again", cached)
	}
	delete(files, "packages")
	return &debian{Files: mergeUsr(files), Manifest: string(manifest.Data)}, nil
}

// mergeUsr moves what older Debian packages have in /lib and the like below /usr, where newer ones
// have it.
func mergeUsr(t tree) tree {
	merged := tree{}
	for name, n := range t {
		top, _, deep := strings.Cut(name, "/")
		switch top {
		case "bin", "sbin", "lib", "lib64":
			if n.Type != tar.TypeSymlink || deep {
				name = "usr/" + name
			}
		}
		merged[name] = n
	}
	return merged
}

// manifestHook lists what was unpacked. mmdebstrap gives it the new root as $1.
const manifestHook = `cd "$1/var/cache/apt/archives" && for d in *.deb; do ` +
	`echo "$(dpkg-deb --show --showformat='${Package} ${Version} ${Architecture}' "$d") $(sha256sum <"$d" | cut -d' ' -f1)"; ` +
	`done | LC_ALL=C sort >"$1/packages"`

// mmdebstrap makes a tar of packages; flags say how far they are installed.
func (b *build) mmdebstrap(ctx context.Context, l packageList, out string, flags ...string) error {
	m := b.Mirrors
	if m.Main == "" || m.Security == "" {
		found, err := aptMirrors(ctx)
		if err != nil {
			return err
		}
		if m.Main == "" {
			m.Main = found.Main
		}
		if m.Security == "" {
			m.Security = found.Security
		}
	}
	b.log("fetching %d packages and what they need from Debian %s", len(l.Packages), l.Suite)
	tmp := out + ".new"
	defer os.Remove(tmp)
	args := append(flags, "--format=tar", "--architectures=amd64",
		"--include="+strings.Join(l.Packages, ","),
		"--aptopt=APT::Install-Recommends \"false\"",
		"--aptopt=Acquire::Languages \"none\"",
		l.Suite, tmp, "-")
	cmd := exec.CommandContext(ctx, "mmdebstrap", args...)
	cmd.Env = append(os.Environ(), fmt.Sprintf("SOURCE_DATE_EPOCH=%d", b.Epoch.Unix()), "LC_ALL=C.UTF-8")
	cmd.Stdin = strings.NewReader(m.sources(l.Suite))
	if err := runQuiet(cmd); err != nil {
		return fmt.Errorf("unpack Debian packages: %w", err)
	}
	return os.Rename(tmp, out)
}

// sources is an apt sources.list of a suite with its updates.
func (m mirrors) sources(suite string) string {
	var s strings.Builder
	line := func(uri, suite string) {
		if uri != "" {
			fmt.Fprintf(&s, "deb [signed-by=%s] %s %s main\n", keyring, uri, suite)
		}
	}
	line(m.Main, suite)
	line(m.Main, suite+"-updates")
	line(m.Security, suite+"-security")
	return s.String()
}

// aptMirrors asks apt where this machine gets Debian from; apt need not have fetched anything yet.
func aptMirrors(ctx context.Context) (mirrors, error) {
	release, err := os.ReadFile("/etc/os-release")
	if err != nil {
		return mirrors{}, err
	}
	cmd := exec.CommandContext(ctx, "apt-get", "indextargets", "--no-release-info", "--format",
		"$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages")
	out, err := cmd.Output()
	if err != nil {
		return mirrors{}, fmt.Errorf("ask apt for its sources: %w", err)
	}
	m := parseMirrors(string(out), codename(string(release)))
	if m.Main == "" {
		return mirrors{},
			fmt.Errorf("no Debian mirror in this machine's apt sources: pass --mirror and --security-mirror")
	}
	return m, nil
}

// parseMirrors finds, in lines of repository, suite and component, the mirrors that the release
// itself (say bookworm) and its security updates come from.
func parseMirrors(targets, codename string) (m mirrors) {
	for line := range strings.Lines(targets) {
		f := strings.Fields(line)
		if len(f) != 3 || f[2] != "main" {
			continue
		}
		switch strings.TrimSuffix(f[1], "/updates") {
		case codename, "stable", "oldstable", "testing", "sid", "unstable":
			if m.Main == "" {
				m.Main = f[0]
			}
		case codename + "-security", "stable-security", "oldstable-security", "testing-security":
			if m.Security == "" {
				m.Security = f[0]
			}
		}
	}
	return m
}

// codename is VERSION_CODENAME of an os-release file.
func codename(release string) string {
	for line := range strings.Lines(release) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "VERSION_CODENAME="); ok {
			return strings.Trim(v, `"`)
		}
	}
	return ""
}

// runQuiet runs a command and shows what it said only when it fails.
func runQuiet(cmd *exec.Cmd) error {
	var said bytes.Buffer
	cmd.Stdout = &said
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		if cmd.Err != nil {
			return fmt.Errorf("%w (make deps installs what is missing)", err)
		}
		const most = 2000
		tail := said.Bytes()
		if len(tail) > most {
			tail = tail[len(tail)-most:]
		}
		return fmt.Errorf("%s: %w\n%s", filepath.Base(cmd.Path), err, bytes.TrimSpace(tail))
	}
	return nil
}

// readList reads a file of words, one a line, with comments.
func readList(name string) ([]string, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var words []string
	for line := range strings.Lines(string(data)) {
		line, _, _ = strings.Cut(line, "#")
		words = append(words, strings.Fields(line)...)
	}
	return words, nil
}

// digestFile adds a file's content to a running hash.
func digestFile(w io.Writer, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}

package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"
)

// pick takes from Debian's files the ones a list names, and every shared library that those need.
// Naming what an image has, rather than what to remove, keeps surprises of a package update out of
// it; the libraries follow by themselves from what the ELF files say they need.
//
// The list has one pattern a line: * matches within a path element, ** across them; a directory stands
// for all below it; a line that starts with ! takes away from what the lines before it named; # starts a
// comment. A pattern that matches nothing is an error, so that a renamed file is noticed.
func pick(from tree, list string) (tree, error) {
	picked := tree{}
	for i, line := range strings.Split(list, "\n") {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		pattern, drop := strings.CutPrefix(line, "!")
		re, err := glob(pattern)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		matched := false
		in := from
		if drop {
			in = picked
		}
		for _, name := range in.names() {
			if !re.MatchString(name) {
				continue
			}
			matched = true
			if drop {
				delete(picked, name)
			} else {
				take(picked, from, name)
			}
		}
		if !matched {
			return nil, fmt.Errorf("line %d: %q matches no file of the packages", i+1, line)
		}
	}
	return picked, closeLibraries(picked, from)
}

// take copies a file, the directories above it with their modes, and what it links to.
func take(to, from tree, name string) {
	if _, ok := to[name]; ok {
		return
	}
	n, ok := from[name]
	if !ok {
		return
	}
	for d := path.Dir(name); d != "."; d = path.Dir(d) {
		if p, ok := from[d]; ok {
			to[d] = p
		}
	}
	to[name] = n
	if n.Type == tar.TypeSymlink {
		next := target(name, n.Link)
		if real, ok := from.resolve(next); ok {
			take(to, from, next)
			take(to, from, real)
		}
	}
}

// glob turns a pattern into a regular expression that matches the path and all below it.
func glob(pattern string) (*regexp.Regexp, error) {
	var re strings.Builder
	re.WriteString("^")
	p := clean(pattern)
	for i := 0; i < len(p); i++ {
		switch {
		case strings.HasPrefix(p[i:], "**"):
			re.WriteString(".*")
			i++
		case p[i] == '*':
			re.WriteString("[^/]*")
		default:
			re.WriteString(regexp.QuoteMeta(p[i : i+1]))
		}
	}
	re.WriteString("(/.*)?$")
	return regexp.Compile(re.String())
}

// libraryPath is where Debian's dynamic linker on amd64 looks without a cache.
var libraryPath = []string{"usr/lib/x86_64-linux-gnu", "usr/lib", "usr/lib64"}

// closeLibraries adds to picked what its ELF files need, interpreters included, until nothing is
// missing. A library that is in no package is an error.
func closeLibraries(picked, from tree) error {
	todo := picked.names()
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		n := picked[name]
		if n.Type != tar.TypeReg || !bytes.HasPrefix(n.Data, []byte(elf.ELFMAG)) {
			continue
		}
		needs, dirs, err := needed(n.Data)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, lib := range needs {
			at, ok := find(from, lib, dirs)
			if !ok {
				return fmt.Errorf("%s needs %s, which no package has", name, lib)
			}
			if _, ok := picked[at]; ok {
				continue
			}
			take(picked, from, at)
			if real, ok := from.resolve(at); ok {
				todo = append(todo, real)
			}
		}
	}
	return nil
}

// needed gives the libraries and the interpreter an ELF file asks for, and where else to look for them.
func needed(data []byte) (libs, dirs []string, err error) {
	f, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		return nil, nil, err
	}
	if f.Type == elf.ET_REL {
		return nil, nil, nil
	}
	if f.Machine != elf.EM_X86_64 && f.Machine != elf.EM_386 {
		return nil, nil, nil // firmware
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		b := make([]byte, p.Filesz)
		if _, err := p.ReadAt(b, 0); err != nil {
			return nil, nil, err
		}
		libs = append(libs, strings.TrimRight(string(b), "\x00"))
	}
	imported, err := f.ImportedLibraries()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		return nil, nil, err
	}
	runpath, err := f.DynString(elf.DT_RUNPATH)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range runpath {
		dirs = append(dirs, strings.Split(r, ":")...)
	}
	return append(libs, imported...), dirs, nil
}

func find(t tree, lib string, dirs []string) (string, bool) {
	if path.IsAbs(lib) {
		// An interpreter, /lib64/ld-linux-x86-64.so.2: packages have it below /usr.
		dirs, lib = []string{path.Join("usr", path.Dir(lib))}, path.Base(lib)
	}
	for _, d := range append(dirs, libraryPath...) {
		at := path.Join(clean(d), lib)
		if _, ok := t[at]; ok {
			return at, true
		}
	}
	return "", false
}

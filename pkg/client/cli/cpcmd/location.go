package cpcmd

import (
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/stream/copyfile"
)

// location is one side of a copy.
type location struct {
	// text is what the user has written.
	text string
	// machine is empty for a file of this machine, whose path is -, standard input or output, or a name.
	machine, path string
}

// machineName is NAME, NAMESPACE/NAME, KIND/NAME or KIND/NAME/NAMESPACE.
var machineName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]*(/[A-Za-z0-9][A-Za-z0-9.-]*){0,2}$`)

// parseLocation distinguishes MACHINE:PATH from a local path. A local path with a colon is written with ./ before it.
func parseLocation(text string) location {
	name, path, found := strings.Cut(text, ":")
	if !found || !machineName.MatchString(name) || runtime.GOOS == "windows" && len(name) == 1 {
		return location{text: text, path: text}
	}
	if namespace, rest, ok := strings.Cut(name, "/"); ok && !strings.Contains(rest, "/") {
		if _, kind := cli.KindOf(namespace); !kind {
			name = "vm/" + rest + "/" + namespace
		}
	}
	return location{text: text, machine: name, path: path}
}

// plan is what a command line asks for.
type plan struct {
	machine   string
	direction string
	// sources and to are paths, each on its side.
	sources []string
	to      string
	// toText is the destination as the user has written it.
	toText string
}

// parse sorts out which side is the machine.
func parse(sources []string, to string) (plan, error) {
	destination := parseLocation(to)
	p := plan{machine: destination.machine, direction: copyfile.Push, to: destination.path, toText: to}
	if destination.machine == "" {
		p.direction = copyfile.Pull
	}
	for i, text := range sources {
		s := parseLocation(text)
		remote := s.machine != ""
		switch {
		case remote && destination.machine != "":
			return p, cli.UsageErrorf("%q and %q are both in a machine; one side must be here", text, to)
		case !remote && destination.machine == "":
			return p, cli.UsageErrorf("neither %q nor %q is in a machine: write NAME:PATH", text, to)
		case remote && i > 0 && s.machine != p.machine:
			return p, cli.UsageErrorf("%q and %q are in different machines; copy from one at a time", sources[0], text)
		case remote:
			p.machine = s.machine
		}
		p.sources = append(p.sources, s.path)
	}
	return p, p.check()
}

// check refuses what needs no cluster to be refused.
func (p *plan) check() error {
	guest := p.sources
	if p.direction == copyfile.Push {
		guest = []string{p.to}
	}
	for _, path := range guest {
		if err := copyfile.CheckPath(path); err != nil {
			return cli.UsageErrorf("%s", err)
		}
		if p.direction == copyfile.Pull && copyfile.Base(path) == "" {
			return cli.UsageErrorf("%s is a directory; name a file in it", path)
		}
	}
	for _, path := range append(append([]string{}, p.sources...), p.to) {
		if path == "" {
			return cli.UsageErrorf("a path on this side is empty; . is the current directory")
		}
	}
	if err := p.checkNames(); err != nil {
		return err
	}
	if p.direction == copyfile.Push {
		return p.checkPush()
	}
	if p.to == "-" && len(p.sources) > 1 {
		return cli.UsageErrorf("only one file can go to standard output")
	}
	return nil
}

// checkNames refuses two sources that would be one file: the last would be all that is left of them.
func (p *plan) checkNames() error {
	if p.to == "-" {
		return nil
	}
	first := map[string]string{}
	for _, source := range p.sources {
		if source == "-" {
			continue
		}
		name := copyfile.Base(source)
		if p.direction == copyfile.Push {
			name, _ = p.push(source)
		}
		if other, taken := first[name]; taken {
			return cli.UsageErrorf("%q and %q would both be %s in %s; copy them one at a time, to different names",
				other, source, name, p.toText)
		}
		first[name] = source
	}
	return nil
}

func (p *plan) checkPush() error {
	for _, source := range p.sources {
		switch {
		case source != "-":
		case len(p.sources) > 1:
			return cli.UsageErrorf("standard input, -, can be the only source")
		case copyfile.Base(p.to) == "":
			return cli.UsageErrorf("standard input has no name: name the file in the guest, not the directory %s", p.to)
		}
	}
	return nil
}

// push returns what to ask of the guest for a source: the name of a file that goes into a directory, and whether that
// directory must exist.
func (p *plan) push(source string) (name string, intoDirectory bool) {
	if source == "-" {
		return "", false
	}
	return filepath.Base(filepath.Clean(source)), len(p.sources) > 1 || copyfile.Base(p.to) == ""
}

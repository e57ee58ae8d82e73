package vnc

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
)

// Kinds of viewer, as --vnc-type has them.
const (
	Tiger        = "tiger"
	Chicken      = "chicken"
	Real         = "real"
	RemoteViewer = "remote-viewer"
)

// Kinds are all kinds of viewer.
var Kinds = []string{Tiger, Chicken, Real, RemoteViewer}

// ErrNoViewer is a machine without a VNC viewer.
var ErrNoViewer = errors.New("no VNC viewer found")

// Viewer is a program that shows VNC.
type Viewer struct {
	Kind string
	// Path is the program: a file, or a name to look up in PATH.
	Path string
}

// System describes the machine that a viewer is to run on.
type System struct {
	// OS is runtime.GOOS.
	OS string
	// Look finds a program in PATH, Glob files by a pattern.
	Look func(name string) (string, error)
	Glob func(pattern string) ([]string, error)
}

// candidates returns where viewers are, best first. A path with a slash is a pattern, anything else in PATH.
func candidates(os string) []Viewer {
	if os == "darwin" {
		return []Viewer{
			{Tiger, "/Applications/TigerVNC Viewer*.app/Contents/MacOS/TigerVNC Viewer"},
			{Chicken, "/Applications/Chicken.app/Contents/MacOS/Chicken"},
			{Real, "/Applications/VNC Viewer.app/Contents/MacOS/vncviewer"},
			{RemoteViewer, "remote-viewer"},
			{Tiger, "vncviewer"},
		}
	}
	return []Viewer{{RemoteViewer, "remote-viewer"}, {Tiger, "vncviewer"}, {Tiger, "xtigervncviewer"}}
}

// Find finds a viewer, of the given kind or, with "", of any. It returns ErrNoViewer when there is none.
func (s System) Find(kind string) (Viewer, error) {
	var tried []string
	for _, v := range candidates(s.OS) {
		if kind != "" && v.Kind != kind {
			continue
		}
		tried = append(tried, v.Path)
		if strings.HasPrefix(v.Path, "/") {
			found, err := s.Glob(v.Path)
			if err == nil && len(found) > 0 {
				slices.Sort(found)
				return Viewer{v.Kind, found[len(found)-1]}, nil // the newest version
			}
			continue
		}
		if path, err := s.Look(v.Path); err == nil {
			return Viewer{v.Kind, path}, nil
		}
	}
	return Viewer{}, fmt.Errorf("%w: looked for %s", ErrNoViewer, strings.Join(tried, ", "))
}

// Args returns the program's arguments for a server at address.
func (v Viewer) Args(address net.Addr, verbose bool) []string {
	target := address.String()
	if tcp, ok := address.(*net.TCPAddr); ok {
		target = net.JoinHostPort("127.0.0.1", strconv.Itoa(tcp.Port))
	}
	var args []string
	switch v.Kind {
	case RemoteViewer:
		args = []string{"vnc://" + target}
		if verbose {
			args = append(args, "--debug")
		}
	case Real:
		args = []string{target, "-WarnUnencrypted=0", "-Shared=0", "-ShareFiles=0"}
		if verbose {
			args = append(args, "-log=*:stderr:100")
		}
	case Tiger:
		// TigerVNC takes HOST:N for a display below 100 and a port from there on; HOST::PORT always is a port.
		args = []string{strings.Replace(target, ":", "::", 1)}
		if verbose {
			args = append(args, "Log=*:stderr:100")
		}
	default:
		args = []string{target}
	}
	return args
}

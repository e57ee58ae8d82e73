// Package copyfile is the protocol of the subresource copyfile, virtkit's own, which copies one file to or from a guest
// through the guest agent. It travels in the frames of package exec, with channels of its own.
//
// The client sends one Request frame. To push, it sends Data frames then, of which an empty one is the end; the server
// sends an Opened frame, Written frames and, last of all, one Result frame, which may come before all data is sent. To
// pull, the server sends an Opened frame, Data frames and the Result. A client that closes before the Result, or ends
// its direction before the end of what it pushes, has left: nothing of the copy stays under the file's name.
// docs/guest-agent.md describes it for other clients.
package copyfile

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/virtkit/virtkit/pkg/stream/exec"
)

// Subresource is its name, of virtualmachineinstances, in the API and in RBAC (verb get).
const Subresource = "copyfile"

// The channels.
const (
	ChannelRequest exec.Channel = iota
	ChannelData
	ChannelOpened
	ChannelWritten
	ChannelResult
)

// MaxPath is the longest path, bytes: Linux'.
const MaxPath = 4095

// Directions of a copy, as the client sees it.
const (
	Push = "push"
	Pull = "pull"
)

// Request holds what to copy.
type Request struct {
	// Direction is Push, into the guest, or Pull, out of it.
	Direction string `json:"direction"`
	// Path is the file in the guest, absolute. Where a directory is there, Push makes the file Name in it.
	Path string `json:"path"`
	// Name is the file's name; empty says that Path may not be a directory. Push only.
	Name string `json:"name,omitempty"`
	// IntoDirectory says that Path has to be a directory. Push only.
	IntoDirectory bool `json:"intoDirectory,omitempty"`
	// Mode is the file's permission bits, of 0777. Without it a file that is there keeps its own, and a new one has
	// 0644. Push only.
	Mode *uint32 `json:"mode,omitempty"`
}

// Opened describes the file that is about to be copied.
type Opened struct {
	// Path is the file in the guest.
	Path string `json:"path"`
	// Size is its length in bytes, and Mode its permission bits, when the guest can say. Pull only.
	Size *int64  `json:"size,omitempty"`
	Mode *uint32 `json:"mode,omitempty"`
}

// Written reports how much of what is pushed the guest has taken.
type Written struct {
	Bytes int64 `json:"bytes"`
}

// Result is the result of a copy.
type Result struct {
	// Bytes is the number of bytes copied, SHA256 the checksum of them in hexadecimal.
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256,omitempty"`
	// Verified says that the guest has computed the same checksum of the file, Changed that it has got another one of a
	// file that was pulled.
	Verified bool `json:"verified,omitempty"`
	Changed  bool `json:"changed,omitempty"`
	// InPlace says that the file was written under its name, for the guest could not put one in its place, nor set a
	// mode.
	InPlace bool `json:"inPlace,omitempty"`
	// Failure is set when nothing was copied.
	Failure *metav1.Status `json:"failure,omitempty"`
}

// Reasons of failures that are about the file.
const (
	ReasonNoFile  metav1.StatusReason = "NoSuchFile"
	ReasonDenied  metav1.StatusReason = "FileDenied"
	ReasonFull    metav1.StatusReason = "GuestFull"
	ReasonRefused metav1.StatusReason = "FileRefused" // it is not what it has to be: a directory, say
)

// Check refuses a request that makes no sense.
func (r *Request) Check() error {
	switch r.Direction {
	case Push:
	case Pull:
		if r.Name != "" || r.IntoDirectory || r.Mode != nil {
			return errors.New("name, intoDirectory and mode are of a push only")
		}
	default:
		return fmt.Errorf("direction %q is not push or pull", r.Direction)
	}
	if r.Mode != nil && *r.Mode > 0o777 {
		return fmt.Errorf("mode %#o is not between 0 and 0777", *r.Mode)
	}
	if r.Name != "" && !plain(r.Name) {
		return fmt.Errorf("%q cannot be the name of a file", r.Name)
	}
	if err := CheckPath(r.Path); err != nil {
		return err
	}
	switch {
	case r.IntoDirectory && r.Name == "":
		return errors.New("a file that goes into a directory needs a name")
	case r.Name == "" && Base(r.Path) == "":
		return fmt.Errorf("%s is a directory; name a file in it", r.Path)
	}
	return nil
}

// CheckPath refuses a path that is no absolute path of a file of a guest.
func CheckPath(path string) error {
	switch {
	case path == "":
		return errors.New("the path in the guest is empty; write one from the root, such as /etc/hosts")
	case len(path) > MaxPath:
		return fmt.Errorf("the path in the guest has %d bytes; the most is %d", len(path), MaxPath)
	case strings.ContainsRune(path, 0), !utf8.ValidString(path):
		return errors.New("the path in the guest has a NUL byte, or is no UTF-8")
	case strings.HasPrefix(path, "/"), Windows(path):
		return nil
	}
	return fmt.Errorf(`the guest agent has no home directory: write the path in the guest from the root, as in `+
		`/etc/hosts or C:\file, instead of %q`, path)
}

// Windows reports whether a path is an absolute Windows path: C:\file, C:/file or \\server\share\file.
func Windows(path string) bool {
	if strings.HasPrefix(path, `\\`) {
		return true
	}
	if len(path) < 3 || path[1] != ':' || path[2] != '\\' && path[2] != '/' {
		return false
	}
	letter := path[0] | 0x20
	return 'a' <= letter && letter <= 'z'
}

// Base returns the last part of a path in a guest, or "" when that can only be a directory: at the end are a separator
// or dots, or there is no such part.
func Base(path string) string {
	separators := "/"
	if Windows(path) {
		separators = `/\`
		if path[1] == ':' {
			path = path[2:]
		}
	}
	base := path[strings.LastIndexAny(path, separators)+1:]
	if !plain(base) {
		return ""
	}
	return base
}

// plain reports whether a name stays in its directory.
func plain(name string) bool {
	return name != "" && name != "." && name != ".." && len(name) <= 255 && utf8.ValidString(name) &&
		!strings.ContainsAny(name, "/\\\x00")
}

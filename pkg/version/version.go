// Package version says which virtkit this is. The values are set at link time by the Makefile and
// goreleaser with -X; a plain `go build` reports the module's own.
package version

import (
	"fmt"
	"runtime"
)

// Set with -ldflags "-X github.com/virtkit/virtkit/pkg/version.gitVersion=v1.2.3 …".
var (
	gitVersion   = "v0.0.0-dev"
	gitCommit    = ""
	gitTreeState = ""
	buildDate    = ""
)

// Info has the fields and JSON keys of KubeVirt's version.Info, which scripts read.
type Info struct {
	GitVersion   string `json:"gitVersion"`
	GitCommit    string `json:"gitCommit"`
	GitTreeState string `json:"gitTreeState"`
	BuildDate    string `json:"buildDate"`
	GoVersion    string `json:"goVersion"`
	Compiler     string `json:"compiler"`
	Platform     string `json:"platform"`
}

// Get returns this build's version.
func Get() Info {
	return Info{
		GitVersion:   gitVersion,
		GitCommit:    gitCommit,
		GitTreeState: gitTreeState,
		BuildDate:    buildDate,
		GoVersion:    runtime.Version(),
		Compiler:     runtime.Compiler,
		Platform:     fmt.Sprintf("%s/%s", runtime.GOOS, runtime.GOARCH),
	}
}

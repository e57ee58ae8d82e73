package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// reaching are the packages that reach into pods, where others may put links, FIFOs and devices, and change them
// meanwhile. Files are opened, made, changed and removed there by package beneath, which alone may do it by these
// functions.
var reaching = []string{
	"pkg/handler", "pkg/handler/records", "pkg/handler/podfs", "pkg/handler/migrationproxy", "pkg/handler/streams",
	"pkg/handler/usage",
}

// byPath are functions that find a file by a path or change one, by the packages that have them.
var byPath = map[string][]string{
	"os": {
		"Chdir", "Chmod", "Chown", "Chtimes", "CopyFS", "Create", "CreateTemp", "DirFS", "Lchown", "Link", "Lstat",
		"Mkdir", "MkdirAll", "MkdirTemp",
		"Open", "OpenFile", "OpenInRoot", "OpenRoot", "ReadDir", "ReadFile", "Readlink", "Remove", "RemoveAll",
		"Rename", "Stat", "Symlink", "Truncate", "WriteFile",
	},
	"unix": {
		"Access", "Chdir", "Chmod", "Chown", "Chroot", "Creat", "Faccessat", "Faccessat2", "Fchdir", "Fchmod",
		"Fchmodat", "Fchown", "Fchownat", "Fstatat", "Lchown", "Link",
		"Linkat", "Lstat", "Mkdir", "Mkdirat", "Mkfifo", "Mkfifoat", "Mknod", "Mknodat", "Mount", "MountSetattr",
		"MoveMount", "Open", "Openat", "Openat2",
		"OpenTree", "Readlink", "Readlinkat", "Rename", "Renameat", "Renameat2", "Rmdir", "Setxattr", "Stat", "Statx",
		"Symlink", "Symlinkat", "Truncate",
		"Unlink", "Unlinkat", "Unmount", "Utimes", "UtimesNanoAt",
	},
	"syscall": {
		"Chmod", "Chown", "Fchmod", "Fchmodat", "Fchown", "Fchownat", "Lchown", "Link", "Lstat", "Mkdir", "Mkdirat",
		"Mkfifo", "Mknod", "Mknodat", "Mount", "Open", "Openat",
		"Rename", "Rmdir", "Stat", "Symlink", "Unlink", "Unmount",
	},
	"filepath": {"EvalSymlinks", "Glob", "Walk", "WalkDir"},
	"ioutil":   {"ReadAll", "ReadDir", "ReadFile", "TempDir", "TempFile", "WriteFile"},
}

// nodesOwn are the uses of such functions on what no pod can write, by the file and function they are in.
var nodesOwn = map[string][]string{
	// procfs, cgroupfs and devices of the node
	"pkg/handler/dial.go: session.dialGuest":                  {"os.Open"},
	"pkg/handler/gated.go: handler.offerGated":                {"os.Stat"},
	"pkg/handler/handler.go: bootID":                          {"os.ReadFile"},
	"pkg/handler/podfs/bpf.go: allowUnified":                  {"os.Open"},
	"pkg/handler/podfs/cgroup.go: Process.processes":          {"os.ReadFile"},
	"pkg/handler/podfs/find.go: processes":                    {"os.ReadDir"},
	"pkg/handler/podfs/find.go: openProcess":                  {"os.OpenFile"},
	"pkg/handler/podfs/process.go: Process.open":              {"unix.Openat"},
	"pkg/handler/podfs/process.go: sameFile":                  {"os.Stat"},
	"pkg/handler/podfs/realtime.go: realtimeThreads":          {"os.ReadDir", "os.ReadFile"},
	"pkg/handler/podfs/rights.go: setRule":                    {"os.WriteFile"},
	"pkg/handler/podfs/userfault.go: Process.EnsureUserfault": {"os.ReadFile"},
	"pkg/handler/run.go: handler.offerDevices":                {"os.DirFS"},
	// the kubelet's directories, as far as pods cannot write them
	"pkg/handler/handler.go: Node.forgetOldPods":     {"os.Lstat"},
	"pkg/handler/podfs/find.go: blockNumber":         {"unix.Lstat"},
	"pkg/handler/podfs/find.go: mappedDevice":        {"os.Readlink"},
	"pkg/handler/podfs/grants.go: kubeletMaps":       {"filepath.Glob"},
	"pkg/handler/podfs/grants.go: pluginGrants":      {"os.Open"},
	"pkg/handler/podfs/peer.go: Process.inContainer": {"os.ReadDir", "unix.Lstat"},
	// whether there is a socket, whatever it is
	"pkg/handler/podfs/kill.go: Launchers":        {"os.Lstat", "os.ReadDir"},
	"pkg/handler/watchdog.go: watchdog.launchers": {"os.Lstat"}, // whether the directory is there
	"pkg/handler/podfs/run.go: waitSocket":        {"os.Lstat"},
	"pkg/handler/session.go: session.stillThere":  {"os.Lstat"},
	"pkg/handler/podfs/run.go: OpenRun":           {"os.OpenRoot"}, // for package capabilities
	// virt-handler's own state
	"pkg/handler/capabilities.go: handler.newProber": {"os.Stat"}, // devices of the node
	"pkg/handler/handler.go: Node.forgetHarvested":   {"os.RemoveAll"},
	"pkg/handler/history.go: loadHistory":            {"os.ReadFile"},
	"pkg/handler/history.go: history.save":           {"os.MkdirAll"},
	"pkg/handler/records/records.go: Store.Load":     {"os.ReadFile"},
	"pkg/handler/records/records.go: Store.Save":     {"os.MkdirAll"},
	"pkg/handler/records/records.go: Store.each":     {"os.ReadDir"},
	"pkg/handler/records/records.go: Store.remove":   {"os.Remove"},
	// mounts, on descriptors that package beneath has found
	"pkg/handler/podfs/attach.go: AttachMount":  {"unix.MoveMount"},
	"pkg/handler/podfs/attach.go: Prune":        {"unix.Fchdir", "unix.Unmount"},
	"pkg/handler/podfs/attach.go: copyMount":    {"unix.MountSetattr", "unix.OpenTree"},
	"pkg/handler/podfs/nolinks.go: refuseLinks": {"unix.MountSetattr"},
}

// TestPodsAreReachedByDescriptor keeps files of pods from being opened, made, changed and removed by path.
func TestPodsAreReachedByDescriptor(t *testing.T) {
	seen := map[string]bool{}
	for _, dir := range reaching {
		files, err := filepath.Glob(filepath.Join("../..", dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", dir, len(files), err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, declaration := range parsed.Decls {
				where := dir + "/" + filepath.Base(file) + ": " + nameOf(declaration)
				for _, use := range usesByPath(declaration) {
					seen[where+" "+use] = true
					if !slices.Contains(nodesOwn[where], use) {
						t.Errorf("%s uses %s: have package beneath do it, or, if no pod can write what it is used "+
							"on, say so in tests/arch", where, use)
					}
				}
			}
		}
	}
	for where, uses := range nodesOwn {
		for _, use := range uses {
			if !seen[where+" "+use] {
				t.Errorf("%s does not use %s any more: take it from the list in tests/arch", where, use)
			}
		}
	}
}

// nameOf is a function's name, with its receiver's type.
func nameOf(declaration ast.Decl) string {
	f, ok := declaration.(*ast.FuncDecl)
	if !ok {
		return "outside of functions"
	}
	if f.Recv == nil {
		return f.Name.Name
	}
	of := f.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	if generic, ok := of.(*ast.IndexExpr); ok {
		of = generic.X
	}
	if id, ok := of.(*ast.Ident); ok {
		return id.Name + "." + f.Name.Name
	}
	return f.Name.Name
}

// usesByPath are the functions of byPath that are called or passed on, sorted, each once.
func usesByPath(in ast.Node) []string {
	var out []string
	ast.Inspect(in, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if from, ok := s.X.(*ast.Ident); ok && slices.Contains(byPath[from.Name], s.Sel.Name) {
				out = append(out, from.Name+"."+s.Sel.Name)
			}
		}
		return true
	})
	slices.Sort(out)
	return slices.Compact(out)
}

package launcher

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"path"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/virtkit/virtkit/pkg/launcher/agent"
	"github.com/virtkit/virtkit/pkg/stream/copyfile"
)

// Exit codes of the scripts below.
const (
	exitDirectory   = 41
	exitNoDirectory = 42
	exitNotRegular  = 43
	exitNoParent    = 44
	exitFailed      = 45 // what stderr says
	exitMoved       = 46
	exitDamaged     = 47
)

// sizeAndMode is a script that says of the file $0 its size and mode, if it can; of one that is not there the agent
// says more.
const sizeAndMode = `[ -d "$0" ] && exit 41
[ -e "$0" ] || exit 0
[ -f "$0" ] || exit 43
stat -L -c '%s %a' -- "$0" 2>/dev/null
exit 0`

// prepareFor is a script that makes room for the file $0, or $1 in the directory $0, which $2 = dir says that it has to
// be: it makes the directory $3 beside it, and says where the file will be. Links are followed, so that the file that
// is replaced is the one that they lead to. Before, it removes what of such directories of its own was left there by
// copies that nobody could end, when nothing in them has changed for a day: only the files that this package makes, and
// the directory if nothing else is in it, for whoever owns the one above may have put another in its place.
const prepareFor = `t=$0
if [ -d "$t" ]; then
	[ -n "$1" ] || exit 41
	t=${t%/}/$1
elif [ "$2" = dir ]; then
	exit 42
fi
[ -d "$t" ] && exit 41
if [ -L "$t" ]; then t=$(readlink -f -- "$t") && [ -n "$t" ] || exit 44; fi
[ -e "$t" ] && [ ! -f "$t" ] && exit 43
d=${t%/*}
[ -d "${d:-/}" ] || exit 44
d=$(cd -P -- "${d:-/}" && pwd -P) || exit 45
for old in "${d%/}"/.virtkit-*; do
	[ -d "$old" ] && [ ! -L "$old" ] && [ -O "$old" ] && [ -z "$(find "$old" -mtime -1 2>&1)" ] || continue
	(cd -P -- "$old" && [ -O . ] && rm -f file input && cd .. && rmdir -- "$old") 2>/dev/null
done
mkdir -m 700 -- "${d%/}/$3" || exit 45
printf %s "${d%/}/${t##*/}"`

// installFrom is a script that puts the file of the directory $0 in the place of $1, with the mode $2, and prints
// verified when its checksum is $3. It works inside the directory, whose content nobody else can change: the owner of
// its parent could put links into the way. A file that is replaced passes on its owner, and its mode if $2 is empty.
const installFrom = `cd -P -- "$0" && [ -O . ] && [ "$(pwd -P)" = "$0" ] || exit 46
sum=$(sha256sum file 2>/dev/null)
[ -z "$sum" ] || [ "${sum%% *}" = "$3" ] || exit 47
mode=$2
if [ -f "$1" ]; then
	owner=$(stat -c %u:%g -- "$1" 2>/dev/null) && chown "$owner" file
	[ -n "$mode" ] || mode=$(stat -c %a -- "$1" 2>/dev/null)
fi
chmod "${mode:-644}" file || exit 45
sync file 2>/dev/null
[ -d "$1" ] && exit 41
mv -f -- file "$1" || exit 45
cd / && rmdir -- "$0"
[ -z "$sum" ] || printf verified`

// sumOf is a script that says the SHA-256 of the first $1 bytes of the file $0, if it can.
const sumOf = `command -v head >/dev/null && command -v sha256sum >/dev/null || exit 0
head -c "$1" -- "$0" | sha256sum`

// shell runs a script in the guest. ok is false when there is no shell, or the agent may not run one. A script that
// nobody waits for any more is ended: the checksum of a large file would take minutes.
func (s *service) shell(
	ctx context.Context, script string, arguments ...string,
) (_ agent.ExecStatus, ok bool, _ error) {
	pid, err := s.spawn(ctx, agent.Exec(append([]string{"/bin/sh", "-c", script}, arguments...), nil))
	switch {
	case status.Code(err) == codes.NotFound,
		status.Code(err) == codes.FailedPrecondition && agent.TroubleOf(err.Error()) == agent.Forbidden:
		return agent.ExecStatus{}, false, nil
	case err != nil:
		return agent.ExecStatus{}, false, err
	}
	ended, err := s.awaitProgram(ctx, pid)
	if ctx.Err() != nil {
		s.endProgram(pid)
	}
	return ended, true, err
}

// look finds out what is to be pulled; what the guest cannot say is nil.
func (s *service) look(ctx context.Context, name string) (size *uint64, mode *uint32, err error) {
	if copyfile.Windows(name) {
		return nil, nil, nil
	}
	ended, ok, err := s.shell(ctx, sizeAndMode, name)
	if err != nil || !ok {
		return nil, nil, err
	}
	if err := scriptStatus(name, ended); err != nil {
		return nil, nil, err
	}
	first, second, _ := strings.Cut(strings.TrimSpace(string(ended.Output)), " ")
	if n, err := strconv.ParseUint(first, 10, 63); err == nil {
		size = &n
	}
	if n, err := strconv.ParseUint(second, 8, 16); err == nil {
		bits := uint32(n) & 0o777
		mode = &bits
	}
	return size, mode, nil
}

// prepare finds out where a file goes, and makes room for it. A caller that leaves meanwhile does not interrupt it, or
// nobody would know what is to be removed.
func (s *service) prepare(r copyfile.Request) (place, error) {
	if copyfile.Windows(r.Path) {
		return inPlace(r)
	}
	ctx, cancel := context.WithTimeout(s.life, transfer)
	defer cancel()
	into := ""
	if r.IntoDirectory {
		into = "dir"
	}
	room := ".virtkit-" + rand.Text()
	ended, ok, err := s.shell(ctx, prepareFor, r.Path, r.Name, into, room)
	if err != nil {
		return place{}, err
	}
	if !ok {
		return inPlace(r)
	}
	if err := scriptStatus(r.Path, ended); err != nil {
		return place{}, err
	}
	target := string(ended.Output)
	if err := copyfile.CheckPath(target); err != nil || copyfile.Windows(target) || copyfile.Base(target) == "" {
		return place{}, status.Errorf(codes.Aborted, "%s: the guest does not say where the file would be",
			r.Path)
	}
	return place{target: target, dir: path.Join(path.Dir(target), room)}, nil
}

// install puts a file that has been written in its place, and reports whether its checksum has been compared. When the
// caller leaves meanwhile the file is in its place or what was there still is.
func (s *service) install(ctx context.Context, p place, mode *uint32, sum string) (verified bool, err error) {
	bits := ""
	if mode != nil {
		bits = fmt.Sprintf("%o", *mode)
	}
	ended, ok, err := s.shell(ctx, installFrom, p.dir, p.target, bits, sum)
	if err == nil && !ok {
		err = status.Errorf(codes.Aborted, "%s: the guest's shell is gone", p.target)
	}
	if err == nil {
		err = scriptStatus(p.target, ended)
	}
	return string(ended.Output) == "verified", err
}

// checksum returns the SHA-256 of a file's first bytes as the guest computes it; empty when it cannot.
func (s *service) checksum(ctx context.Context, name string, size uint64) string {
	if copyfile.Windows(name) {
		return ""
	}
	ended, ok, err := s.shell(ctx, sumOf, name, strconv.FormatUint(size, 10))
	if err != nil || !ok || ended.ExitCode != 0 || ended.Signal != 0 {
		return ""
	}
	sum, _, _ := strings.Cut(strings.TrimSpace(string(ended.Output)), " ")
	if raw, err := hex.DecodeString(sum); err != nil || len(raw) != 32 {
		return ""
	}
	return sum
}

// abandon removes what has been written of a file that is not to be. A file that is written under its name stays.
func (s *service) abandon(p place) {
	if p.dir == "" {
		return
	}
	ctx, cancel := context.WithTimeout(s.life, cleanUp)
	defer cancel()
	if err := s.succeed(ctx, "rm", "-r", p.dir); err != nil {
		s.options.Log.Info("a directory stays in the guest", "dir", p.dir, "err", err)
	}
}

// scriptStatus returns the error that a script's exit code means for the file name.
func scriptStatus(name string, ended agent.ExecStatus) error {
	said := strings.TrimSpace(string(ended.ErrorOutput))
	switch {
	case ended.Signal != 0:
		return status.Errorf(codes.Aborted, "%s: the guest's shell was ended by signal %d", name, ended.Signal)
	case ended.ExitCode == 0:
		return nil
	}
	switch ended.ExitCode {
	case exitDirectory:
		return isDirectory(name)
	case exitNoDirectory:
		return status.Errorf(codes.Aborted, "%s is not a directory in the guest", name)
	case exitNotRegular:
		return status.Errorf(codes.Aborted, "%s is not a regular file in the guest", name)
	case exitNoParent:
		return status.Errorf(codes.NotFound, "%s: there is no such directory in the guest", name)
	case exitMoved:
		return status.Errorf(codes.Aborted, "%s: somebody in the guest has moved the file while it was written", name)
	case exitDamaged:
		return status.Errorf(codes.DataLoss, "%s: the guest has another checksum of what was written", name)
	case exitFailed:
		return troubleStatus(name, said)
	}
	return status.Errorf(codes.Aborted, "%s: the guest's shell ends with %d: %s", name, ended.ExitCode, said)
}

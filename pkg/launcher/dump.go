package launcher

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
)

// dumpSuffix ends the names of dumps, as KubeVirt's.
const dumpSuffix = ".memory.dump"

// dumper writes the guest's memory to volumes, one at a time.
type dumper struct {
	guest *guest
	// dir has the volumes, name begins the files' names.
	dir, name string
	log       *slog.Logger

	mu    sync.Mutex
	dumps map[string]*pb.DumpMemoryResponse // by volume
	queue chan string
}

func newDumper(o Options, g *guest) *dumper {
	return &dumper{
		guest: g, dir: o.Disks.Hotplug, name: o.Name, log: o.Log, dumps: map[string]*pb.DumpMemoryResponse{},
		queue: make(chan string, 1),
	}
}

// DumpMemory implements the contract.
func (s *service) DumpMemory(_ context.Context, req *pb.DumpMemoryRequest) (*pb.DumpMemoryResponse, error) {
	if !s.guest.exists() {
		return nil, status.Error(codes.FailedPrecondition, "the guest has not been started")
	}
	if name := req.Volume; name == "" || filepath.Base(name) != name {
		return nil, status.Errorf(codes.InvalidArgument, "volume: %q is not a name", name)
	}
	return s.dumper.dump(req.Volume, time.Now())
}

// dump begins a dump, or reports the one that has begun.
func (d *dumper) dump(volume string, now time.Time) (*pb.DumpMemoryResponse, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if done := d.dumps[volume]; done != nil {
		return proto.CloneOf(done), nil
	}
	select {
	case d.queue <- volume:
	default:
		return nil, status.Error(codes.FailedPrecondition, "another memory dump is under way")
	}
	d.dumps[volume] = &pb.DumpMemoryResponse{
		Started: timestamppb.New(now),
		File:    d.name + "-" + volume + "-" + now.UTC().Format("20060102-150405") + dumpSuffix,
	}
	return proto.CloneOf(d.dumps[volume]), nil
}

// forget makes way for another dump to the volume. It fails while there is one.
func (d *dumper) forget(volume string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if dump := d.dumps[volume]; dump != nil && dump.Ended == nil {
		return status.Error(codes.FailedPrecondition, "the guest's memory is still being written to the volume")
	}
	delete(d.dumps, volume)
	return nil
}

// run makes the dumps, until ctx ends.
func (d *dumper) run(ctx context.Context) {
	for {
		select {
		case volume := <-d.queue:
			d.mu.Lock()
			file := d.dumps[volume].File
			d.mu.Unlock()
			err := d.write(ctx, filepath.Join(d.dir, volume, file))
			d.mu.Lock()
			d.dumps[volume].Ended = timestamppb.Now()
			if err != nil {
				d.log.Warn("cannot dump the guest's memory", "volume", volume, "err", err)
				d.dumps[volume].Failure = err.Error()
			}
			d.mu.Unlock()
		case <-ctx.Done():
			return
		}
	}
}

// write makes one dump, all of it or nothing. It replaces the guest's earlier dumps in the same directory, as in
// KubeVirt: they are removed when the new one is complete, or before it when the claim has no room for both.
func (d *dumper) write(ctx context.Context, file string) error {
	conn, err := d.guest.connection(ctx)
	if err != nil {
		return err
	}
	directory := filepath.Dir(file)
	earlier, err := d.earlier(file)
	if err != nil {
		return err
	}
	if hasRoom(ctx, conn, directory, 0) != nil {
		taken, err := allocated(earlier)
		if err != nil {
			return err
		}
		// The last dump stays when even its room would not do.
		if err := hasRoom(ctx, conn, directory, taken); err != nil {
			return err
		}
		if err := remove(earlier); err != nil {
			return err
		}
		earlier = nil
	}
	if err := conn.Dump(ctx, file); err != nil {
		return errors.Join(err, remove([]string{file}))
	}
	return remove(earlier)
}

// earlier returns the files beside a new dump's that are earlier dumps of the guest.
func (d *dumper) earlier(file string) (files []string, err error) {
	directory := filepath.Dir(file)
	entries, err := os.ReadDir(directory)
	if err != nil {
		return nil, fmt.Errorf("look for room: %w", err)
	}
	begin := d.name + "-" + filepath.Base(directory) + "-"
	for _, entry := range entries {
		name := entry.Name()
		dump := strings.HasPrefix(name, begin) && strings.HasSuffix(name, dumpSuffix) && entry.Type().IsRegular()
		if dump && name != filepath.Base(file) {
			files = append(files, filepath.Join(directory, name))
		}
	}
	return files, nil
}

// allocated returns how many bytes of their file system files take.
func allocated(files []string) (bytes uint64, err error) {
	for _, file := range files {
		var stat unix.Stat_t
		if err := unix.Lstat(file, &stat); err != nil {
			return 0, fmt.Errorf("look for room: %w", err)
		}
		bytes += uint64(stat.Blocks) * 512 //nolint:gosec // a file takes no negative number of blocks
	}
	return bytes, nil
}

// remove deletes files, which may be gone.
func remove(files []string) (errs error) {
	for _, file := range files {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = errors.Join(errs, err)
		}
	}
	return errs
}

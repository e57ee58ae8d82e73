package launcher

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"path"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/virtkit/virtkit/pkg/launcher/agent"
	"github.com/virtkit/virtkit/pkg/launcher/hypervisor"
	pb "github.com/virtkit/virtkit/pkg/launcher/launcherpb"
	"github.com/virtkit/virtkit/pkg/stream/copyfile"
)

// maxCopies is the number of files that may be copied to or from the guest at once.
const maxCopies = 8

// copyStream is the caller of CopyFile.
type copyStream = grpc.BidiStreamingServer[pb.CopyFileRequest, pb.CopyFileResponse]

// CopyFile implements the contract.
func (s *service) CopyFile(stream copyStream) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	start := first.GetStart()
	if start == nil {
		return status.Error(codes.InvalidArgument, "the first message does not say what to copy")
	}
	request := copyfile.Request{
		Direction: copyfile.Push, Path: start.Path, Name: start.Name, IntoDirectory: start.IntoDirectory,
		Mode: start.Mode,
	}
	if start.Pull {
		request.Direction = copyfile.Pull
	}
	if err := request.Check(); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	end, err := s.copying.begin("files are copied to or from this guest")
	if err != nil {
		return err
	}
	defer end()
	c := &copying{s: s, stream: stream, request: request, sum: sha256.New()}
	if start.Pull {
		err = c.pull(stream.Context())
	} else {
		err = c.push(stream.Context())
	}
	if stream.Context().Err() != nil {
		return stream.Context().Err()
	}
	return err
}

// copying is one copy under way.
type copying struct {
	s       *service
	stream  copyStream
	request copyfile.Request
	bytes   uint64
	sum     hash.Hash
}

func (c *copying) opened(o *pb.CopyFileOpened) error {
	return c.stream.Send(&pb.CopyFileResponse{What: &pb.CopyFileResponse_Opened{Opened: o}})
}

func (c *copying) checksum() string { return hex.EncodeToString(c.sum.Sum(nil)) }

func (c *copying) finish(r *pb.CopyFileResult) error {
	r.Bytes, r.Sha256 = c.bytes, c.checksum()
	return c.stream.Send(&pb.CopyFileResponse{What: &pb.CopyFileResponse_Result{Result: r}})
}

// pull reads a file of the guest to its end. The guest may change it meanwhile: what was read is compared afterwards.
func (c *copying) pull(ctx context.Context) error {
	name := c.request.Path
	size, mode, err := c.s.look(ctx, name)
	if err != nil {
		return err
	}
	file, err := c.s.openFile(ctx, name, agent.ForReading)
	if err != nil {
		return fileStatus(name, err)
	}
	if err = c.opened(&pb.CopyFileOpened{Path: name, Size: size, Mode: mode}); err == nil {
		err = c.read(ctx, file)
	}
	if err = c.closed(ctx, file, name, err); err != nil {
		return err
	}
	result := &pb.CopyFileResult{}
	if found := c.s.checksum(ctx, name, c.bytes); found != "" {
		result.Verified = found == c.checksum()
		result.Changed = !result.Verified
	}
	return c.finish(result)
}

func (c *copying) read(ctx context.Context, file *guestFile) error {
	for {
		data, eof, err := file.read(ctx)
		if err != nil {
			return fileStatus(c.request.Path, err)
		}
		c.sum.Write(data)
		c.bytes += uint64(len(data))
		if len(data) > 0 {
			if err := c.stream.Send(&pb.CopyFileResponse{What: &pb.CopyFileResponse_Data{Data: data}}); err != nil {
				return err
			}
		}
		if eof {
			return nil
		}
	}
}

// push writes a file of the guest: beside its name first, if the guest has a shell for that.
func (c *copying) push(ctx context.Context) error {
	place, err := c.s.prepare(c.request)
	if err != nil {
		return err
	}
	placed := false
	defer func() {
		if !placed {
			c.s.abandon(place)
		}
	}()
	file, err := c.s.openFile(ctx, place.file(), agent.ForWriting)
	if err != nil {
		return fileStatus(place.target, err)
	}
	if err = c.opened(&pb.CopyFileOpened{Path: place.target}); err == nil {
		err = c.write(ctx, file, place.target)
	}
	if err = c.closed(ctx, file, place.target, err); err != nil {
		return err
	}
	result := &pb.CopyFileResult{InPlace: place.dir == ""}
	if !result.InPlace {
		if result.Verified, err = c.s.install(ctx, place, c.request.Mode, c.checksum()); err != nil {
			return err
		}
	}
	placed = true
	return c.finish(result)
}

// closed closes the file after err, which counts more than what may be wrong about the closing.
func (c *copying) closed(ctx context.Context, file *guestFile, name string, err error) error {
	closing := file.close(ctx)
	if err == nil {
		return fileStatus(name, closing)
	}
	if closing != nil {
		c.s.options.Log.Info("the guest agent has not closed a file", "err", closing)
	}
	return err
}

// write takes the file from the caller.
func (c *copying) write(ctx context.Context, file *guestFile, name string) error {
	for {
		message, err := c.stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return status.Error(codes.Canceled, "the caller has left in the middle of the file")
		case err != nil:
			return err
		}
		switch what := message.What.(type) {
		case *pb.CopyFileRequest_End:
			return fileStatus(name, file.flush(ctx))
		case *pb.CopyFileRequest_Data:
			if err := file.write(ctx, what.Data); err != nil {
				return fileStatus(name, err)
			}
			c.sum.Write(what.Data)
			c.bytes += uint64(len(what.Data))
			written := &pb.CopyFileResponse_Written{Written: c.bytes}
			if err := c.stream.Send(&pb.CopyFileResponse{What: written}); err != nil {
				return err
			}
		default:
			return status.Error(codes.InvalidArgument, "a message that is neither data nor its end")
		}
	}
}

// fileStatus adds a gRPC code and a sentence to an error about a file of the guest.
func fileStatus(name string, err error) error {
	var refusal *hypervisor.AgentError
	if !errors.As(err, &refusal) {
		return agentStatus(err)
	}
	return troubleStatus(name, refusal.Message)
}

// troubleStatus does what fileStatus does, for a message of the agent or a program in the guest.
func troubleStatus(name, message string) error {
	switch agent.TroubleOf(message) {
	case agent.NoFile:
		return status.Errorf(codes.NotFound, "%s: there is no such file or directory in the guest", name)
	case agent.Denied:
		return status.Errorf(codes.PermissionDenied,
			"%s: the guest agent's user may not do this in the guest (permission denied)", name)
	case agent.IsDirectory:
		return isDirectory(name)
	case agent.Full:
		return status.Errorf(codes.OutOfRange, "%s: the guest has no space left there", name)
	case agent.ReadOnly:
		return status.Errorf(codes.PermissionDenied, "%s: the guest has it on a read-only file system", name)
	case agent.Forbidden:
		return status.Error(codes.FailedPrecondition, "the guest agent is not allowed to copy files: let its "+
			"configuration allow guest-file-open, -read, -write, -flush and -close, and unfreeze its file systems if "+
			"they are frozen")
	}
	return status.Errorf(codes.Aborted, "%s: the guest says: %s", name, message)
}

func isDirectory(name string) error {
	return status.Errorf(codes.Aborted, "%s is a directory in the guest; name a file", name)
}

// place is the destination of a file.
type place struct {
	// target is the file's name, without links in it where the guest could follow them.
	target string
	// dir is a directory beside it that only the agent's user can enter; empty says that the file is written under its
	// name.
	dir string
}

// staged is the file's name in dir.
const staged = "file"

func (p place) file() string {
	if p.dir == "" {
		return p.target
	}
	return path.Join(p.dir, staged)
}

// inPlace returns the destination of a file in a guest without a shell, which cannot say what is a directory.
func inPlace(r copyfile.Request) (place, error) {
	base := copyfile.Base(r.Path)
	switch {
	case base != "" && !r.IntoDirectory:
		return place{target: r.Path}, nil
	case r.Name == "":
		return place{}, isDirectory(r.Path)
	}
	separator := "/"
	if copyfile.Windows(r.Path) {
		separator = `\`
	}
	last := r.Path[len(r.Path)-1]
	if last == '/' || last == '\\' && separator == `\` {
		separator = ""
	}
	return place{target: fmt.Sprint(r.Path, separator, r.Name)}, nil
}

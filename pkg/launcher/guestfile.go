package launcher

import (
	"context"
	"errors"
	"fmt"

	"github.com/virtkit/virtkit/pkg/launcher/agent"
)

// guestFile is an open file of the guest, which its agent holds. It is closed by close.
type guestFile struct {
	s      *service
	handle int64
}

// askFile asks the agent something about a file, within the time for one exchange.
func (s *service) askFile(ctx context.Context, command string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, transfer)
	defer cancel()
	ask, err := s.asker(ctx)
	if err != nil {
		return "", err
	}
	return ask(command)
}

// openFile opens a file of the guest; mode is agent.ForReading or agent.ForWriting.
func (s *service) openFile(ctx context.Context, path, mode string) (*guestFile, error) {
	reply, err := s.askFile(ctx, agent.OpenFile(path, mode))
	if err != nil {
		return nil, err
	}
	handle, err := agent.ParseOpenFile(reply)
	if err != nil {
		return nil, err
	}
	return &guestFile{s, handle}, nil
}

// write appends data, in pieces.
func (f *guestFile) write(ctx context.Context, data []byte) error {
	for len(data) > 0 {
		n := min(agent.FileChunk, len(data))
		reply, err := f.s.askFile(ctx, agent.WriteFile(f.handle, data[:n]))
		if err != nil {
			return err
		}
		written, err := agent.ParseWriteFile(reply)
		if err == nil && (written <= 0 || written > n) {
			err = fmt.Errorf("the guest agent has written %d bytes of %d", written, n)
		}
		if err != nil {
			return err
		}
		data = data[written:]
	}
	return nil
}

// read returns the next bytes, and whether the file has ended after them.
func (f *guestFile) read(ctx context.Context) (data []byte, eof bool, err error) {
	reply, err := f.s.askFile(ctx, agent.ReadFile(f.handle))
	if err != nil {
		return nil, false, err
	}
	return agent.ParseReadFile(reply)
}

func (f *guestFile) flush(ctx context.Context) error {
	_, err := f.s.askFile(ctx, agent.FlushFile(f.handle))
	return err
}

// close ends the file, also when ctx has ended: the agent would hold it for ever.
func (f *guestFile) close(ctx context.Context) error {
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(f.s.life, cleanUp)
		defer cancel()
	}
	_, err := f.s.askFile(ctx, agent.CloseFile(f.handle))
	return err
}

// writeFile writes a file of the guest.
func (s *service) writeFile(ctx context.Context, path string, data []byte) error {
	file, err := s.openFile(ctx, path, agent.ForWriting)
	if err != nil {
		return err
	}
	return errors.Join(file.write(ctx, data), file.close(ctx))
}

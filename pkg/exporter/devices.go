package exporter

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
)

// show listens at the socket until ctx ends, so that virt-handler knows by its peer which process is to have the
// devices. Nothing is said there.
func (o *Options) show(ctx context.Context) error {
	if !slices.ContainsFunc(o.Volumes, func(v Volume) bool { return v.kind == device }) {
		return nil
	}
	if err := os.Remove(o.Socket); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("remove the socket of before: %w", err)
	}
	listener, err := net.Listen("unix", o.Socket)
	if err != nil {
		return fmt.Errorf("listen for virt-handler: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = listener.Close() }) // Accept ends
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1)) // until the peer has looked
			_ = conn.Close()
		}
	}()
	return nil
}

// ready answers the kubelet: not before the devices can be read.
func (h *handler) ready(w http.ResponseWriter) {
	for _, volume := range h.Volumes {
		if volume.kind != device {
			continue
		}
		file, err := os.Open(volume.Path)
		if err != nil {
			http.Error(w, "the devices cannot be read yet: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		_ = file.Close() // nothing was written
	}
	_, _ = io.WriteString(w, "OK") // the kubelet is gone
}

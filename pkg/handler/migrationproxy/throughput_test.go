package migrationproxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// BenchmarkMemory moves a guest's memory through two virt-handlers with TLS between them: MB/s, and the processors'
// time for a MiB, of all that takes part.
func BenchmarkMemory(b *testing.B) {
	log := slog.New(slog.DiscardHandler)
	from, to := dir(b.TempDir()), dir(b.TempDir())
	server := &Server{Log: log, Peer: anybody, Open: func(types.UID, string, string) (Run, error) { return to, nil }}
	peer := httptest.NewTLSServer(server.Handler())
	defer peer.Close()
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(peer.Certificate())
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		config := &tls.Config{RootCAs: roots, ServerName: "example.com"} // as httptest's certificate is made out to
		return (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
	}
	outgoing, err := Listen(from, dial, peer.Listener.Addr().String(), "m", "", log)
	if err != nil {
		b.Fatal(err)
	}
	defer outgoing.Close()
	channel := sockets[Memory]
	listener, err := to.Listen(channel.to)
	if err != nil {
		b.Fatal(err)
	}
	defer listener.Close()
	here, err := from.Dial(b.Context(), channel.from)
	if err != nil {
		b.Fatal(err)
	}
	defer here.Close()
	there, err := listener.AcceptUnix()
	if err != nil {
		b.Fatal(err)
	}
	defer there.Close()

	const chunk = 1 << 20
	b.SetBytes(chunk)
	got := make(chan error, 1)
	go func() {
		buf := make([]byte, 32<<10) // as QEMU reads
		var err error
		for err == nil {
			_, err = there.Read(buf)
		}
		got <- err
	}()
	began := spent(b)
	piece := make([]byte, 64<<10)
	for b.Loop() {
		for range chunk / len(piece) {
			if _, err := here.Write(piece); err != nil {
				b.Fatal(err)
			}
		}
	}
	_ = here.Close()
	if err := <-got; !errors.Is(err, io.EOF) {
		b.Fatal(err)
	}
	b.ReportMetric(float64((spent(b)-began).Microseconds())/float64(b.N), "cpu-us/MiB")
}

func spent(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

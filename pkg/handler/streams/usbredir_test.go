package streams

import (
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/stream"
)

// TestUSBRedirections: each client has a port of its own; when all are taken the next is refused, and one that goes
// away makes room.
func TestUSBRedirections(t *testing.T) {
	s := newSetup(t)
	var ports []<-chan net.Conn
	for n := range names.USBRedirections {
		ports = append(ports, s.device(names.SocketUSB+strconv.Itoa(n)+names.SuffixUSB))
	}
	var clients []*stream.Conn
	var devices []net.Conn
	for n := range names.USBRedirections {
		c := s.dial("usbredir")
		clients = append(clients, c)
		device := take(t, ports[n])
		defer device.Close()
		devices = append(devices, device)
		if _, err := device.Write([]byte("hello" + strconv.Itoa(n))); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 6)
		if _, err := io.ReadFull(c, got); err != nil || string(got) != "hello"+strconv.Itoa(n) {
			t.Fatalf("port %d: %q, %v", n, got, err)
		}
	}
	_, err := s.dialName("demo/", "usbredir")
	if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "all 4 USB redirections") {
		t.Fatalf("the fifth: %v", err)
	}
	if err := clients[2].Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := devices[2].Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Fatalf("the device does not hear of its client's end: %v", err)
	}
	devices[2].Close() // as QEMU does
	deadline := time.Now().Add(time.Minute)
	for {
		c, err := s.dialName("demo/", "usbredir")
		if err == nil {
			take(t, ports[2]).Close()
			c.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the port is not free: %v", err)
		}
	}
}

func TestNoUSBRedirection(t *testing.T) {
	s := newSetup(t)
	_, err := s.dialName("demo/", "usbredir")
	if err == nil || !strings.Contains(err.Error(), "clientPassthrough") {
		t.Errorf("%v", err)
	}
}

package script

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/forward"
	"github.com/virtkit/virtkit/pkg/stream"
)

// servePortForward serves ports of running guests: 7 answers with what it got once that has ended, udp 7 each datagram;
// 13 says who it is and ends; 22 is ssh. All others are refused.
func (c *cluster) servePortForward(mux *http.ServeMux, subresources string) {
	for _, resource := range []string{resourceVMs, resourceVMIs} {
		path := "GET " + subresources + "namespaces/{ns}/" + resource + "/{name}/portforward/{port}/{protocol}"
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) { c.portForward(w, r, resource) })
	}
}

func (c *cluster) portForward(w http.ResponseWriter, r *http.Request, resource string) {
	ns, name, port := r.PathValue("ns"), r.PathValue("name"), r.PathValue("port")+"/"+r.PathValue("protocol")
	if c.find(resource, ns, name) == nil {
		refuse(w, apierrors.NewNotFound(group(resource), name))
		return
	}
	vmi, ok := c.find(resourceVMIs, ns, name).(*v1.VirtualMachineInstance)
	switch {
	case !ok || vmi.Status.Phase != v1.Running:
		refuse(w, apierrors.NewConflict(group(resource), name, errors.New("VM is not running")))
		return
	case port != "7/tcp" && port != "7/udp" && port != "13/tcp" && port != "22/tcp":
		stream.WriteStatus(w, metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusConflict, Reason: stream.ReasonPortRefused,
			Message: fmt.Sprintf("the guest of %s/%s refused the connection: nothing listens on its port %s", ns, name,
				port),
		})
		return
	}
	conn, err := stream.Accept(w, r, stream.Options{})
	if err != nil {
		return
	}
	c.work.Go(func() {
		defer conn.Close()
		switch port {
		case "7/tcp":
			if got, err := io.ReadAll(conn); err == nil {
				_, _ = fmt.Fprintf(conn, "%s/%s got %s", ns, name, got)
			}
		case "7/udp":
			buf := make([]byte, stream.BufferSize)
			for packets := (stream.Packets{Conn: conn}); ; {
				n, err := packets.Read(buf)
				if err != nil {
					return
				}
				_, _ = fmt.Fprintf(packets, "%s/%s got %s", ns, name, buf[:n])
			}
		case "13/tcp":
			_, _ = fmt.Fprintf(conn, "%s/%s\n", ns, name)
		case "22/tcp":
			c.sshd.Serve(conn)
		}
	})
}

// stopForwarding ends what a script that failed has left in the background.
func stopForwarding(t *testing.T, dir string) {
	t.Helper()
	r, err := forward.NewRegistry(func(string) string { return dir }, os.UserHomeDir)
	if err != nil {
		t.Error(err)
		return
	}
	sessions, err := r.List(context.Background())
	if err != nil {
		t.Error(err)
	}
	for _, s := range sessions {
		if _, err := r.Stop(context.Background(), s.Name); err != nil {
			t.Error(err)
		}
	}
}

// talk sends a text to an address and prints the answer: talk tcp|udp ADDRESS TEXT, and through a SOCKS5 proxy
// talk socks PROXY NAME:PORT TEXT.
func talk() {
	if err := conversation(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "talk:", err)
		os.Exit(1)
	}
}

func conversation(args []string) error {
	kind := args[0]
	if kind == "socks" {
		kind = "tcp"
	}
	conn, err := net.Dial(kind, args[1])
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	if args[0] == "socks" {
		if err := connect(conn, args[2]); err != nil {
			return err
		}
	}
	if _, err := io.WriteString(conn, args[len(args)-1]); err != nil {
		return err
	}
	if kind == "udp" {
		buf := make([]byte, stream.BufferSize)
		n, err := conn.Read(buf)
		fmt.Printf("%s\n", buf[:n])
		return err
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	answer, err := io.ReadAll(bufio.NewReader(conn))
	fmt.Printf("%s\n", answer)
	return err
}

// connect asks a SOCKS5 proxy for a name.
func connect(conn net.Conn, target string) error {
	name, port, _ := strings.Cut(target, ":")
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return err
	}
	request := append([]byte{5, 1, 0, 5, 1, 0, 3, byte(len(name))}, name...)
	if _, err := conn.Write(binary.BigEndian.AppendUint16(request, uint16(number))); err != nil {
		return err
	}
	reply := make([]byte, 2+10)
	if _, err := io.ReadFull(conn, reply); err != nil {
		return err
	}
	if reply[3] != 0 {
		return fmt.Errorf("the proxy answers %d", reply[3])
	}
	return nil
}

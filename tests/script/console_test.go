package script

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/stream"
)

// guest is what answers on a console: a shell of few words. Each line is answered with a line; `poweroff` ends it,
// `crash` cuts the connections, `bang` makes it silent.
type guest struct {
	mu    sync.Mutex
	log   bytes.Buffer
	conns map[*stream.Conn]bool
	line  []byte
}

const prompt = "demo login: "

func (c *cluster) guestOf(key string) *guest {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.consoles[key]
	if g == nil {
		g = &guest{conns: map[*stream.Conn]bool{}}
		g.log.WriteString("booting\r\n" + prompt)
		c.consoles[key] = g
	}
	return g
}

func (c *cluster) stopGuest(key string) {
	c.mu.Lock()
	g := c.consoles[key]
	delete(c.consoles, key)
	c.mu.Unlock()
	if g != nil {
		g.powerOff()
	}
}

func (c *cluster) console(w http.ResponseWriter, r *http.Request) {
	ns, name := r.PathValue("ns"), r.PathValue("name")
	vmi, ok := c.find(resourceVMIs, ns, name).(*v1.VirtualMachineInstance)
	if !ok {
		refuse(w, apierrors.NewNotFound(group(resourceVMIs), name))
		return
	}
	if vmi.Status.Phase != v1.Running {
		refuse(w,
			stream.NewNotRunning("Unable to connect to VirtualMachineInstance because phase is "+
				string(vmi.Status.Phase)+" instead of Running"))
		return
	}
	conn, err := stream.Accept(w, r, stream.Options{})
	if err != nil {
		return
	}
	defer conn.Close()
	c.work.Add(1)
	defer c.work.Done()
	c.guestOf(ns+"/"+name).serve(conn, r.URL.Query().Get("join") == "true", r.URL.Query().Get("tail") != "")
}

// serve attaches one client until it or the guest ends.
func (g *guest) serve(conn *stream.Conn, join, tail bool) {
	g.mu.Lock()
	if !join {
		for other := range g.conns {
			g.drop(other, stream.CodePolicy, "another client has taken over this console")
		}
	}
	if tail {
		if _, err := conn.Write(g.log.Bytes()); err != nil {
			g.mu.Unlock()
			return
		}
	}
	g.conns[conn] = true
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		delete(g.conns, conn)
		g.mu.Unlock()
	}()
	buf := make([]byte, 4096)
	for {
		n, err := conn.Read(buf)
		g.typed(buf[:n])
		if err != nil {
			return
		}
	}
}

func (g *guest) typed(data []byte) {
	for _, b := range data {
		g.mu.Lock()
		if b != '\n' && b != '\r' {
			g.line = append(g.line, b)
			g.mu.Unlock()
			continue
		}
		line := strings.TrimSpace(string(g.line))
		g.line = nil
		g.mu.Unlock()
		switch line {
		case "poweroff":
			g.write("powering off\r\n")
			g.powerOff()
		case "crash":
			g.end(stream.CodeInternal, "the guest's console broke")
		default:
			g.write("you said " + line + "\r\n")
		}
	}
}

func (g *guest) write(text string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.log.WriteString(text)
	for conn := range g.conns {
		if _, err := io.WriteString(conn, text); err != nil {
			delete(g.conns, conn)
		}
	}
}

// clients is how many are at the console.
func (g *guest) clients() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.conns)
}

func (g *guest) powerOff() { g.end(stream.CodeNormal, "") }

func (g *guest) end(code int, reason string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.log.WriteString("booting\r\n" + prompt) // its next life
	for conn := range g.conns {
		g.drop(conn, code, reason)
	}
}

// drop ends one connection; a client that has gone already is as good.
func (g *guest) drop(conn *stream.Conn, code int, reason string) {
	delete(g.conns, conn)
	if err := conn.CloseWithReason(code, reason); err != nil {
		conn.Close()
	}
}

// cut ends all console connections as a virt-api that goes away does.
func (c *cluster) cut() {
	c.mu.Lock()
	guests := make([]*guest, 0, len(c.consoles))
	for _, g := range c.consoles {
		guests = append(guests, g)
	}
	c.mu.Unlock()
	for _, g := range guests {
		g.mu.Lock()
		for conn := range g.conns {
			g.drop(conn, stream.CodeGoingAway, "virt-api is shutting down")
		}
		g.mu.Unlock()
	}
}

package virtapi

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/stream"
)

// TestPortForwardReadsOnce: of many connections the first reads the instance. virt-handler is told which one is meant,
// and when it does not have that one (any more), what the API says counts.
func TestPortForwardReadsOnce(t *testing.T) {
	vmi := instance(v1.Running)
	vmi.UID = "uid-1"
	var uids []string
	here := "uid-1"
	c := newCluster(t, pairOf(v1.RunStrategyAlways, vmi), func(w http.ResponseWriter, r *http.Request) {
		uid := r.URL.Query().Get("uid")
		uids = append(uids, uid)
		if uid != "" && uid != here {
			stream.WriteStatus(w,
				apierrors.NewNotFound(schema.GroupResource{Resource: virtualMachineInstances}, "vm").ErrStatus)
			return
		}
		echoes(w, r)
	})
	now := time.Now()
	c.q.locations.now = func() time.Time { return now }
	open := func(wantReads int, wantUIDs string) {
		t.Helper()
		reads := c.reads
		uids = nil
		conn, err := c.dial("virtualmachines/vm/portforward/80", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(conn); err != nil {
			t.Fatal(err)
		}
		if got := c.reads - reads; got != wantReads || strings.Join(uids, ",") != wantUIDs {
			t.Errorf("%d reads, not %d; asked virt-handler for %q", got, wantReads, uids)
		}
	}
	open(1, "")
	open(0, "uid-1")
	open(0, "uid-1")
	here, vmi.UID = "uid-2", "uid-2" // another of the same name
	open(1, "uid-1,")
	open(0, "uid-2")
	now = now.Add(locationLife)
	open(1, "")

	// What the guest says is no reason to look for it elsewhere.
	c.node = func(w http.ResponseWriter, _ *http.Request) {
		stream.WriteStatus(w, metav1.Status{
			Status: metav1.StatusFailure, Code: 409, Reason: stream.ReasonPortRefused, Message: "nothing listens",
		})
	}
	reads := c.reads
	_, err := c.dial("virtualmachines/vm/portforward/80", nil)
	if apierrors.ReasonForError(err) != stream.ReasonPortRefused || c.reads != reads {
		t.Errorf("%v after %d reads", err, c.reads-reads)
	}
	// A VMI is not the VM of its name: who may reach the one is not believed to know the other.
	if _, ok := c.q.locations.of(locationKey{resource: virtualMachineInstances}); ok {
		t.Error("knows what nobody asked for")
	}
}

// TestSpareConnection: after a stream a connection is ready for the next one, and one that virt-handler has closed
// meanwhile harms nobody.
func TestSpareConnection(t *testing.T) {
	var address atomic.Value
	c := newCluster(t, pairOf(v1.RunStrategyAlways, instance(v1.Running)),
		func(w http.ResponseWriter, r *http.Request) {
			address.Store(r.RemoteAddr)
			echoes(w, r)
		})
	dial := func() {
		t.Helper()
		conn, err := c.dial("virtualmachines/vm/portforward/80", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
	idle := func(there bool) (conn net.Conn) {
		t.Helper()
		s := c.q.streams
		ticker := time.NewTicker(time.Millisecond)
		defer ticker.Stop()
		deadline := time.After(10 * time.Second)
		for {
			s.mu.Lock()
			conn = nil
			for _, h := range s.handlers {
				conn = h.idle
			}
			s.mu.Unlock()
			if (conn != nil) == there {
				return conn
			}
			select {
			case <-ticker.C:
			case <-deadline:
				t.Fatalf("idle connection: %v", conn)
			}
		}
	}
	dial()
	ready := idle(true)
	dial()
	if got := address.Load(); got != ready.LocalAddr().String() {
		t.Errorf("came from %v and not over the idle connection %v", got, ready.LocalAddr())
	}
	if err := idle(true).Close(); err != nil {
		t.Fatal(err)
	}
	c.q.streams.idleLife = time.Millisecond
	dial()
	idle(false) // it does not wait for ever

	c.q.streams.drain(0)
	c.q.streams.prepare(handlerKey{testNode, "127.0.0.1:1"})
	idle(false)
}

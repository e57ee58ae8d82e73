package virtapi

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/stream"
)

// echoes answers a forwarded connection with its path, and then with what it gets.
func echoes(w http.ResponseWriter, r *http.Request) {
	conn, err := stream.Accept(w, r, stream.Options{})
	if err != nil {
		return
	}
	defer conn.Close()
	if strings.HasSuffix(r.URL.Path, "/udp") {
		buf := make([]byte, stream.BufferSize)
		packets := stream.Packets{Conn: conn}
		for {
			n, err := packets.Read(buf)
			if err != nil {
				return
			}
			if _, err := fmt.Fprintf(packets, "%d", n); err != nil {
				return
			}
		}
	}
	_, _ = io.WriteString(conn, r.URL.Path+" ")
	_, _ = io.Copy(conn, conn)
}

func TestPortForward(t *testing.T) {
	c := newCluster(t, pairOf(v1.RunStrategyAlways, instance(v1.Running)), echoes)
	for _, resource := range []string{"virtualmachineinstances", "virtualmachines"} {
		for path, want := range map[string]string{"22": "22/tcp", "8080/tcp": "8080/tcp", "1/TCP": "1/tcp"} {
			conn, err := c.dial(resource+"/vm/portforward/"+path, nil)
			if err != nil {
				t.Fatalf("%s %s: %v", resource, path, err)
			}
			if _, err := io.WriteString(conn, "bytes"); err != nil {
				t.Fatal(err)
			}
			if err := conn.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(conn)
			if want := "/v1/namespaces/default/virtualmachineinstances/vm/portforward/" + want + " bytes"; err != nil ||
				string(got) != want {
				t.Errorf("%s %s: %q, %v", resource, path, got, err)
			}
		}
		conn, err := c.dial(resource+"/vm/portforward/53/udp", nil)
		if err != nil {
			t.Fatal(err)
		}
		packets := stream.Packets{Conn: conn}
		buf := make([]byte, 10)
		for _, size := range []int{0, 1, 50000, stream.MaxPacket} {
			if _, err := packets.Write(make([]byte, size)); err != nil {
				t.Fatal(err)
			}
			if n, err := packets.Read(buf); err != nil || string(buf[:n]) != fmt.Sprint(size) {
				t.Errorf("%s: of %d bytes arrived %s, %v", resource, size, buf[:n], err)
			}
		}
	}
}

func TestPortForwardRefused(t *testing.T) {
	strange := instance(v1.Running)
	anothers := pairOf(v1.RunStrategyAlways, instance(v1.Running))
	anothers["virtualmachineinstances/vm"] = strange
	refuses := func(w http.ResponseWriter, _ *http.Request) {
		stream.WriteStatus(w, metav1.Status{
			Status: metav1.StatusFailure, Code: 409, Reason: stream.ReasonPortRefused, Message: "nothing listens",
		})
	}
	refused := func(err error) bool { return apierrors.ReasonForError(err) == stream.ReasonPortRefused }
	for name, tc := range map[string]struct {
		objects map[string]any
		path    string
		check   func(error) bool
		message string
	}{
		"handler says": {
			pairOf(v1.RunStrategyAlways, instance(v1.Running)), "virtualmachines/vm/portforward/22", refused,
			"nothing listens",
		},
		"no port": {
			pairOf(v1.RunStrategyAlways, instance(v1.Running)), "virtualmachines/vm/portforward/x",
			apierrors.IsBadRequest, "1 to 65535",
		},
		"no protocol": {
			pairOf(v1.RunStrategyAlways, instance(v1.Running)), "virtualmachineinstances/vm/portforward/22/sctp",
			apierrors.IsBadRequest, "tcp or udp",
		},
		"not running": {
			pairOf(v1.RunStrategyAlways, instance(v1.Scheduled)), "virtualmachines/vm/portforward/22",
			stream.NotRunning, "because phase is Scheduled instead of Running",
		},
		"stopped": {
			pairOf(v1.RunStrategyHalted, nil), "virtualmachines/vm/portforward/22", apierrors.IsConflict,
			"VM is not running",
		},
		"another's": {anothers, "virtualmachines/vm/portforward/22", apierrors.IsConflict, "VM is not running"},
		"no VM": {
			map[string]any{},
			"virtualmachines/vm/portforward/22", apierrors.IsNotFound,
			`virtualmachines.kubevirt.io "vm" not found`,
		},
		"no instance": {
			map[string]any{},
			"virtualmachineinstances/vm/portforward/22", apierrors.IsNotFound,
			`virtualmachineinstances.kubevirt.io "vm" not found`,
		},
		"instance, no VM": {
			map[string]any{"virtualmachineinstances/vm": strange},
			"virtualmachines/vm/portforward/22",
			apierrors.IsNotFound, `virtualmachines.kubevirt.io "vm" not found`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, tc.objects, refuses)
			_, err := c.dial(tc.path, nil)
			if !tc.check(err) || !strings.Contains(err.Error(), tc.message) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestVSOCKIsAttached(t *testing.T) {
	c := newCluster(t, pairOf(v1.RunStrategyAlways, instance(v1.Running)), echoes)
	_, err := c.dial("virtualmachineinstances/vm/vsock", url.Values{"port": {"22"}})
	if !apierrors.IsBadRequest(err) ||
		!strings.Contains(err.Error(), "VSOCK is not attached: spec.domain.devices.autoattachVSOCK is not set") {
		t.Errorf("got %v", err)
	}
}

// TestStandby: whether a stream is on standby is virt-handler's to say; one that does not know of it is used as ever.
func TestStandby(t *testing.T) {
	for _, known := range []bool{true, false} {
		t.Run(fmt.Sprint(known), func(t *testing.T) {
			c := newCluster(t, pairOf(v1.RunStrategyAlways, instance(v1.Running)),
				func(w http.ResponseWriter, r *http.Request) {
					conn, err := stream.Accept(w, r, stream.Options{Standby: known})
					if err != nil {
						return
					}
					defer conn.Close()
					if known {
						if err := errors.Join(conn.AwaitAsk(r.Context(), time.Minute), conn.Answer()); err != nil {
							t.Error(err)
						}
					}
					_, _ = io.Copy(conn, conn)
				})
			conn, err := c.dialWith("virtualmachines/vm/portforward/22", nil, stream.Options{Standby: true})
			if err != nil {
				t.Fatal(err)
			}
			if conn.Standby() != known {
				t.Errorf("on standby %v", conn.Standby())
			}
			if known {
				if err := errors.Join(conn.Ask(), conn.AwaitAnswer()); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := io.WriteString(conn, "bytes"); err != nil {
				t.Fatal(err)
			}
			if err := conn.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(conn); err != nil || string(got) != "bytes" {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

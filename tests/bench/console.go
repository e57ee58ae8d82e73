package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/tests/bench/report"
	"github.com/virtkit/virtkit/tests/instance"
)

// everything is a tail that holds all that the tiny guest prints.
const everything = 64 << 10

// console opens a VMI's serial console, starting with the last bytes of what it has printed already.
func (b *bench) console(ctx context.Context, vmi *v1.VirtualMachineInstance, tail int) (net.Conn, error) {
	path := fmt.Sprintf("/apis/subresources.kubevirt.io/v1/namespaces/%s/virtualmachineinstances/%s/console",
		vmi.Namespace, vmi.Name)
	return stream.Dial(ctx, b.Config, path, map[string][]string{"tail": {strconv.Itoa(tail)}, "join": {"true"}},
		stream.Options{})
}

// until reads until the text has appeared.
func until(conn net.Conn, text string) error { return untilWithin(conn, text, patience) }

func untilWithin(conn net.Conn, text string, limit time.Duration) error {
	if err := conn.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	seen, r := []byte{}, bufio.NewReader(conn)
	for {
		c, err := r.ReadByte()
		if err != nil {
			return fmt.Errorf("waiting for %q: %w; last output %q", text, err, seen[max(0, len(seen)-200):])
		}
		if seen = append(seen, c); bytes.HasSuffix(seen, []byte(text)) {
			return nil
		}
	}
}

// createLogin compares create → login prompt with what the same guest takes to boot alone: a reset of it, firmware
// included, in the same pod.
func createLogin(ctx context.Context, b *bench) ([]Row, error) {
	var logins, boots []time.Duration
	for i := range max(b.rounds/3, 1) {
		vmi := b.vmi(fmt.Sprintf("login-%d", i))
		start := time.Now()
		if _, err := b.untilRunning(ctx, vmi); err != nil {
			return nil, err
		}
		conn, err := b.console(ctx, vmi, everything)
		if err != nil {
			return nil, err
		}
		err = func() error {
			if err := until(conn, "login: "); err != nil {
				return err
			}
			logins = append(logins, time.Since(start))
			for _, step := range [][2]string{{"root\r", "assword: "}, {"tiny\r", "# "}} {
				if _, err := io.WriteString(conn, step[0]); err != nil {
					return err
				}
				if err := until(conn, step[1]); err != nil {
					return err
				}
			}
			start = time.Now()
			if _, err := io.WriteString(conn, "reboot -f\r"); err != nil {
				return err
			}
			if err := until(conn, "login: "); err != nil {
				return err
			}
			boots = append(boots, time.Since(start))
			return nil
		}()
		if err := errors.Join(err, conn.Close()); err != nil {
			return nil, err
		}
		if _, err := b.untilGone(ctx, vmi); err != nil {
			return nil, err
		}
	}
	return []Row{report.Timed("create-login", "create → login prompt, median", "s", logins, .5).
		Beside("reset → login, same guest", boots, .5).Beyond(.5)}, nil
}

// booted runs a guest up to its login prompt. gone deletes it, and is to be called in any case.
func (b *bench) booted(ctx context.Context, vmi *v1.VirtualMachineInstance) (gone func() error, err error) {
	gone = func() error { return nil }
	if _, err := b.untilRunning(ctx, vmi); err != nil {
		return gone, err
	}
	gone = func() error {
		_, err := b.untilGone(ctx, vmi)
		return err
	}
	conn, err := b.console(ctx, vmi, everything)
	if err != nil {
		return gone, err
	}
	return gone, errors.Join(until(conn, "login: "), conn.Close())
}

// consoleEcho compares the time for a typed character to come back through the API server, virt-api and virt-handler
// with the same over the serial port's socket on the node, and with `kubectl attach` to a plain Pod's cat, which comes
// back through the API server, the kubelet and containerd.
func consoleEcho(ctx context.Context, b *bench) (rows []Row, err error) {
	vmi := b.vmi("echo")
	gone, err := b.booted(ctx, vmi)
	defer func() { err = errors.Join(err, gone()) }()
	if err != nil {
		return nil, err
	}
	socket, err := b.serialSocket(ctx, vmi)
	if err != nil {
		return nil, err
	}
	cat := b.pod("cat")
	cat.Spec.Containers[0].Command, cat.Spec.Containers[0].Stdin = []string{"cat"}, true
	cat.Spec.TerminationGracePeriodSeconds = new(int64(1))
	if _, err := b.untilRunning(ctx, cat); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.remove(ctx, cat)) }()
	var through, attaching, bare []time.Duration
	for range 2 * b.rounds {
		// The serial port takes one connection, so they alternate.
		for samples, open := range map[*[]time.Duration]func() (net.Conn, error){
			&through:   func() (net.Conn, error) { return b.console(ctx, vmi, 0) },
			&attaching: func() (net.Conn, error) { return b.attach(ctx, cat) },
			&bare:      func() (net.Conn, error) { return net.Dial("unix", socket) },
		} {
			conn, err := open()
			if err != nil {
				return nil, err
			}
			took, err := roundTrips(conn)
			if err := errors.Join(err, conn.Close()); err != nil {
				return nil, err
			}
			*samples = append(*samples, took...)
		}
	}
	return []Row{
		report.Timed("console-echo", "console echo, round trip, median", "ms", through, .5).
			Beside("kubectl attach to cat", attaching, .5).Times(1),
		report.Timed("console-socket", "… beside the serial port alone, median", "ms", through, .5).
			Beside("serial socket on the node", bare, .5),
	}, nil
}

// attach attaches to a pod's container as kubectl does.
func (b *bench) attach(ctx context.Context, pod *corev1.Pod) (net.Conn, error) {
	path := fmt.Sprintf("/api/v1/namespaces/%s/pods/%s/attach", pod.Namespace, pod.Name)
	conn, err := stream.Dial(ctx, b.Config, path, url.Values{"stdin": {"true"}, "stdout": {"true"}},
		stream.Options{Subprotocol: "v4.channel.k8s.io"})
	return attached{conn}, err
}

// attached is a stream of which each message begins with the number of a channel: 0 is the input. Those of what is read
// stay in it.
type attached struct{ *stream.Conn }

func (a attached) Write(p []byte) (int, error) {
	n, err := a.Conn.Write(append([]byte{0}, p...))
	return max(n-1, 0), err
}

// roundTrips types one character at a time at the login prompt, which takes short names only, and waits for each to be
// echoed. The first is for warming up. At the end the line is cleared.
func roundTrips(conn net.Conn) ([]time.Duration, error) {
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	var samples []time.Duration
	buf := make([]byte, 64<<10)
	for i, c := range []byte("QXZJKVWYBPFG") { // in none of the guest's messages, which a console shows again
		start := time.Now()
		if _, err := conn.Write([]byte{c}); err != nil {
			return nil, err
		}
		for {
			n, err := conn.Read(buf)
			if err != nil {
				return nil, err
			}
			if bytes.IndexByte(buf[:n], c) >= 0 {
				break
			}
		}
		if i > 0 {
			samples = append(samples, time.Since(start))
		}
	}
	_, err := conn.Write([]byte{0x15}) // ^U
	return samples, err
}

func (b *bench) launcherPod(ctx context.Context, vmi *v1.VirtualMachineInstance) (*corev1.Pod, error) {
	pods, err := b.Kube.CoreV1().Pods(vmi.Namespace).
		List(ctx, metav1.ListOptions{LabelSelector: names.LabelComponent + "=" + names.VirtLauncher})
	if err != nil {
		return nil, err
	}
	for i := range pods.Items {
		if pods.Items[i].Annotations[v1.DomainAnnotation] == vmi.Name {
			return &pods.Items[i], nil
		}
	}
	return nil, fmt.Errorf("vmi %s has no launcher pod", vmi.Name)
}

// serialSocket is the path of the guest's serial port as this machine sees it. The directory is entered through
// /proc to keep the path short enough for a unix socket.
func (b *bench) serialSocket(ctx context.Context, vmi *v1.VirtualMachineInstance) (string, error) {
	pid, err := b.launcherPID(ctx, vmi)
	if err != nil {
		return "", err
	}
	return filepath.Join(fmt.Sprintf("/proc/%d/root", pid), names.RunDir, names.SocketSerial), nil
}

func (b *bench) launcherPID(ctx context.Context, vmi *v1.VirtualMachineInstance) (int, error) {
	pod, err := b.launcherPod(ctx, vmi)
	if err != nil {
		return 0, err
	}
	processes, err := instance.Processes(string(pod.UID))
	if err != nil {
		return 0, err
	}
	for _, p := range processes {
		if p.Command == "virt-launcher" {
			return p.PID, nil
		}
	}
	return 0, fmt.Errorf("pod %s has no launcher process: %v", pod.Name, processes)
}

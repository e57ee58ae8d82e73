package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/tests/instance"
)

// console opens a VMI's serial console, starting with what it has printed already.
func (b *bench) console(ctx context.Context, vmi *v1.VirtualMachineInstance) (net.Conn, error) {
	path := fmt.Sprintf("/apis/subresources.kubevirt.io/v1/namespaces/%s/virtualmachineinstances/%s/console", vmi.Namespace, vmi.Name)
	return stream.Dial(ctx, b.Config, path, map[string][]string{"tail": {"65536"}, "join": {"true"}}, stream.Options{})
}

// until reads until the text has appeared.
func until(conn net.Conn, text string) error {
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
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
		conn, err := b.console(ctx, vmi)
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
	row := Row{Name: "create-login", What: "create → login prompt, median", Unit: "s", Value: percentile(logins, .5), Anchor: percentile(boots, .5), Versus: "reset → login, same guest"}
	row.Ratio = row.Value / row.Anchor
	row.Goal = "≤ anchor + 1.5 s"
	row.Reached = row.Value <= row.Anchor+1.5
	return []Row{row}, nil
}

// consoleEcho compares the time for a typed character to come back through the API server, virt-api and virt-handler
// with the same over the serial port's socket on the node.
func consoleEcho(ctx context.Context, b *bench) (rows []Row, err error) {
	vmi := b.vmi("echo")
	if _, err := b.untilRunning(ctx, vmi); err != nil {
		return nil, err
	}
	defer func() {
		_, gone := b.untilGone(ctx, vmi)
		err = errors.Join(err, gone)
	}()
	conn, err := b.console(ctx, vmi)
	if err != nil {
		return nil, err
	}
	if err := until(conn, "login: "); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	through, err := roundTrips(conn, 200)
	if err := errors.Join(err, conn.Close()); err != nil {
		return nil, err
	}
	socket, err := b.serialSocket(ctx, vmi)
	if err != nil {
		return nil, err
	}
	direct, err := net.Dial("unix", socket)
	if err != nil {
		return nil, err
	}
	bare, err := roundTrips(direct, 200)
	if err := errors.Join(err, direct.Close()); err != nil {
		return nil, err
	}
	row := Row{Name: "console-echo", What: "console echo, round trip, median", Unit: "ms", Value: percentile(through, .5) * 1000, Anchor: percentile(bare, .5) * 1000, Versus: "serial socket on the node"}
	return []Row{row.ratio(1.8 / 1.3)}, nil
}

// roundTrips types one character at a time and waits for the guest's terminal to echo it.
func roundTrips(conn net.Conn, n int) ([]time.Duration, error) {
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	var samples []time.Duration
	buf := make([]byte, 64)
	for i := range n {
		c := byte('a' + i%26)
		start := time.Now()
		if _, err := conn.Write([]byte{c}); err != nil {
			return nil, err
		}
		for {
			k, err := conn.Read(buf)
			if err != nil {
				return nil, err
			}
			if bytes.IndexByte(buf[:k], c) >= 0 {
				break
			}
		}
		samples = append(samples, time.Since(start))
		if i%20 == 19 { // the login prompt takes short names only
			if _, err := conn.Write([]byte{0x15}); err != nil { // ^U clears the line
				return nil, err
			}
		}
	}
	return samples, nil
}

func (b *bench) launcherPod(ctx context.Context, vmi *v1.VirtualMachineInstance) (*corev1.Pod, error) {
	pods, err := b.Kube.CoreV1().Pods(vmi.Namespace).List(ctx, metav1.ListOptions{LabelSelector: names.LabelComponent + "=" + names.VirtLauncher})
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
	pod, err := b.launcherPod(ctx, vmi)
	if err != nil {
		return "", err
	}
	processes, err := instance.Processes(string(pod.UID))
	if err != nil {
		return "", err
	}
	for _, p := range processes {
		if p.Command == "virt-launcher" {
			return filepath.Join(fmt.Sprintf("/proc/%d/root", p.PID), names.RunDir, names.SocketSerial), nil
		}
	}
	return "", fmt.Errorf("pod %s has no launcher process: %v", pod.Name, processes)
}

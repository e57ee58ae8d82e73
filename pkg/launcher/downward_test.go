package launcher

import (
	"bufio"
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/names"
)

// A guest that asks for metrics finds its node's name on its disk, and at the port, which QEMU serves.
func TestDownwardMetrics(t *testing.T) {
	l := begin(t)
	vmi := demo()
	vmi.Spec.Domain.Devices.DownwardMetrics = &v1.DownwardMetrics{}
	vmi.Spec.Domain.Devices.Disks = append(vmi.Spec.Domain.Devices.Disks, v1.Disk{Name: "metrics"})
	vmi.Spec.Volumes = append(vmi.Spec.Volumes,
		v1.Volume{Name: "metrics", VolumeSource: v1.VolumeSource{DownwardMetrics: &v1.DownwardMetricsVolumeSource{}}})
	port, err := net.Listen("unix", filepath.Join(l.options.RunDir, names.SocketMetrics))
	if err != nil {
		t.Fatal(err)
	}
	defer port.Close()
	if _, err := l.start(vmi); err != nil {
		t.Fatal(err)
	}
	if xml := l.memory.xml; !strings.Contains(xml, "org.github.vhostmd.1") ||
		!strings.Contains(xml, "metrics.metrics") {
		t.Errorf("the domain is %s", xml)
	}

	guest, err := port.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer guest.Close()
	if err := guest.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := guest.Write([]byte("GET /metrics/XML\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	var answer strings.Builder
	for in := bufio.NewScanner(guest); in.Scan() && in.Text() != ""; {
		answer.WriteString(in.Text())
	}
	for _, want := range []string{
		"<name>HostName</name>    <value>node-of-the-test</value>", "FreePhysicalMemory", "ResourceProcessorLimit",
	} {
		if !strings.Contains(answer.String(), want) {
			t.Errorf("the port says %q, not %s", answer.String(), want)
		}
	}

	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); ; <-tick.C {
		disk, err := os.ReadFile(filepath.Join(l.options.Disks.Disks, "metrics.metrics"))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.HasPrefix(disk, []byte("mvbd\x00\x00\x00\x00")) &&
			bytes.Contains(disk, []byte("<value>node-of-the-test</value>")) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the disk has %q", disk[:200])
		}
	}
	l.sigterm()
	if _, err := l.wait(); err != nil {
		t.Error(err)
	}
}

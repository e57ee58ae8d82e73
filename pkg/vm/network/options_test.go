package network

import (
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

func TestQueues(t *testing.T) {
	yes, no := true, false
	for _, tc := range []struct {
		many  *bool
		cpu   *v1.CPU
		model string
		want  uint
	}{
		{&yes, &v1.CPU{Sockets: 2, Cores: 3, Threads: 2}, "virtio", 12},
		{&yes, &v1.CPU{Cores: 4}, "", 4},
		{&yes, &v1.CPU{Sockets: 1, Cores: 1, Threads: 1}, "virtio", 0},
		{&yes, &v1.CPU{Sockets: 1 << 31, Cores: 1 << 31, Threads: 1 << 31}, "virtio", 256},
		{&yes, &v1.CPU{Cores: 4}, "e1000", 0},
		{&yes, nil, "virtio", 0},
		{&no, &v1.CPU{Cores: 4}, "virtio", 0},
		{nil, &v1.CPU{Cores: 4}, "virtio", 0},
	} {
		domain := &v1.DomainSpec{CPU: tc.cpu, Devices: v1.Devices{NetworkInterfaceMultiQueue: tc.many}}
		if got := queues(domain, v1.Interface{Model: tc.model}); got != tc.want {
			t.Errorf("%+v: %d, want %d", tc, got, tc.want)
		}
	}
}

func TestDHCPOptionsErrors(t *testing.T) {
	for _, o := range []v1.DHCPOptions{
		{NTPServers: []string{"fd00::1"}},
		{NTPServers: []string{"ntp.example"}},
		{PrivateOptions: []v1.DHCPPrivateOptions{{Option: 66, Value: "x"}}},
		{PrivateOptions: []v1.DHCPPrivateOptions{{Option: 480, Value: "x"}}},
	} {
		if got, err := dhcpOptions(&o); err == nil {
			t.Errorf("%+v: %+v", o, got)
		}
	}
}

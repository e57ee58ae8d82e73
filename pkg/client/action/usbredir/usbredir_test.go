package usbredir

import (
	"slices"
	"testing"
)

func TestCheckDevice(t *testing.T) {
	for device, ok := range map[string]bool{
		"0951:1666": true, "dead:BEEF": true, "1-3": true, "001-012": true,
		"": false, "951:1666": false, "1-3.2": false, "usb": false, "--device": false, "0951:1666 x": false,
		"0951:1666\n": false,
	} {
		if err := CheckDevice(device); (err == nil) != ok {
			t.Errorf("%q: %v", device, err)
		}
	}
}

func TestArgs(t *testing.T) {
	if got := Args("1-3", 4000); !slices.Equal(got, []string{"--device", "1-3", "--to", "127.0.0.1:4000"}) {
		t.Errorf("%q", got)
	}
}

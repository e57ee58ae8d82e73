// Command raw sends and receives whole Ethernet frames in a guest, by a raw socket, for tests/e2e. It is static and
// small, since the guest agent carries it into the guest.
//
//	raw send LINK FILE KIND       sends the frames of FILE, lines of KIND and the frame in hex, that are of KIND
//	raw receive LINK LAST SECONDS prints the frames that come, lines of hex, until the frame LAST has come
package main

import (
	"encoding/hex"
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		os.Stderr.WriteString("raw: " + err.Error() + "\n")
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 4 && args[0] == "send":
		return send(args[1], args[2], args[3])
	case len(args) == 4 && args[0] == "receive":
		seconds, err := strconv.Atoi(args[3])
		if err != nil {
			return err
		}
		return receive(args[1], args[2], time.Duration(seconds)*time.Second)
	}
	return errors.New("give send LINK FILE KIND, or receive LINK LAST SECONDS")
}

// open returns a socket that has all frames of a link.
func open(link string) (int, error) {
	const all = 0x0300 // ETH_P_ALL, big-endian
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
	if err != nil {
		return 0, errors.New("open a raw socket: " + err.Error())
	}
	request, err := unix.NewIfreq(link)
	if err == nil {
		err = unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, request)
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: int(request.Uint32())})
	}
	if err != nil {
		return 0, errors.New("bind to " + link + ": " + err.Error())
	}
	// Otherwise QEMU hands the guest no frame with a VLAN tag that nothing in the guest has asked for.
	promiscuous := unix.PacketMreq{Ifindex: int32(request.Uint32()), Type: unix.PACKET_MR_PROMISC}
	if err := unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &promiscuous); err != nil {
		return 0, errors.New("hear all of " + link + ": " + err.Error())
	}
	return fd, nil
}

func send(link, file, kind string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	fd, err := open(link)
	if err != nil {
		return err
	}
	sent := 0
	for line := range strings.Lines(string(text)) {
		of, frame, _ := strings.Cut(strings.TrimSpace(line), " ")
		if of != kind {
			continue
		}
		data, err := hex.DecodeString(frame)
		if err != nil {
			return errors.New("read " + frame + ": " + err.Error())
		}
		if _, err := unix.Write(fd, data); err != nil {
			return errors.New("send " + frame + ": " + err.Error())
		}
		sent++
	}
	os.Stdout.WriteString(strconv.Itoa(sent) + "\n")
	return nil
}

func receive(link, last string, within time.Duration) error {
	fd, err := open(link)
	if err != nil {
		return err
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err != nil {
		return err
	}
	os.Stdout.WriteString("ready\n")
	buf := make([]byte, 65536)
	for deadline := time.Now().Add(within); time.Now().Before(deadline); {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		frame := hex.EncodeToString(buf[:n])
		os.Stdout.WriteString(frame + "\n")
		if frame == last {
			return nil
		}
	}
	return errors.New("the last frame did not come")
}

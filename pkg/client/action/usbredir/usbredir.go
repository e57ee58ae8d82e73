// Package usbredir brings a USB device of this machine into a guest: usbredirect, which talks to the device, connects
// to a local port, and what it says goes to a port of the guest. It knows no terminal.
package usbredir

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/stream"
)

// Program is what talks to the device: usbredirect of the project usbredir.
const Program = "usbredirect"

// devicePattern is VENDOR:PRODUCT, both hexadecimal, or BUS-DEVICE, both decimal.
var devicePattern = regexp.MustCompile(`^([[:xdigit:]]{4}:[[:xdigit:]]{4}|[0-9]{1,3}-[0-9]{1,3})$`)

// CheckDevice returns an error when a device is not named as lsusb names it.
func CheckDevice(device string) error {
	if !devicePattern.MatchString(device) {
		return fmt.Errorf("%q is not a USB device: use VENDOR:PRODUCT such as 0951:1666, or BUS-DEVICE such as 1-3, "+
			"as lsusb shows them", device)
	}
	return nil
}

// Args returns the program's arguments for a device and the port that it is to connect to.
func Args(device string, port int) []string {
	return []string{"--device", device, "--to", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
}

// Serve takes one program from l, which it closes, and joins it to the guest until either ends. How the guest's side
// ended is the error: a *stream.CloseError when it was virtkit or the guest that ended it.
func Serve(ctx context.Context, l net.Listener, guest *stream.Conn) error {
	defer guest.Close()
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	program, err := l.Accept()
	stop()
	_ = l.Close()
	switch {
	case ctx.Err() != nil:
		if err == nil {
			_ = program.Close()
		}
		return nil
	case err != nil:
		return fmt.Errorf("wait for %s: %w", Program, err)
	}
	err = stream.Splice(ctx, program, guest)
	var closed *stream.CloseError
	if errors.As(err, &closed) {
		return err
	}
	return nil // it went away, however it did
}

// Report is what `usbredir --no-launch -o json` prints once a program can connect.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	// Metadata has the name and the namespace of the machine.
	metav1.ObjectMeta `json:"metadata"`
	// Address and Port are where virtctl listens.
	Address string `json:"address"`
	Port    int    `json:"port"`
}

// DeepCopyObject implements runtime.Object.
func (r *Report) DeepCopyObject() runtime.Object {
	out := *r
	out.ObjectMeta = *r.DeepCopy()
	return &out
}

// NewReport returns the report of a port that can be reached.
func NewReport(namespace, name, address string, port int) *Report {
	return &Report{
		TypeMeta:   metav1.TypeMeta{APIVersion: action.ReportVersion, Kind: "USBRedirection"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Address:    address, Port: port,
	}
}

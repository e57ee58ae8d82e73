package script

import (
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/stream"
	"github.com/virtkit/virtkit/pkg/stream/rfb"
	"github.com/virtkit/virtkit/pkg/stream/rfb/rfbtest"
)

// screen is what every guest of these tests shows: 40×30, red with a green corner.
func screen() *image.RGBA {
	picture := image.NewRGBA(image.Rect(0, 0, 40, 30))
	for i := range 40 * 30 {
		x, y := i%40, i/40
		picture.SetRGBA(x, y, color.RGBA{255, 0, 0, 255})
		if x < 10 && y < 10 {
			picture.SetRGBA(x, y, color.RGBA{0, 255, 0, 255})
		}
	}
	return picture
}

// running refuses a request about a guest that does not run.
func (c *cluster) running(w http.ResponseWriter, r *http.Request) bool {
	name := r.PathValue("name")
	vmi, ok := c.find(resourceVMIs, r.PathValue("ns"), name).(*v1.VirtualMachineInstance)
	if !ok {
		refuse(w, apierrors.NewNotFound(group(resourceVMIs), name))
		return false
	}
	if vmi.Status.Phase != v1.Running {
		refuse(w,
			stream.NewNotRunning("Unable to connect to VirtualMachineInstance because phase is "+
				string(vmi.Status.Phase)+" instead of Running"))
		return false
	}
	return true
}

func (c *cluster) screenshot(w http.ResponseWriter, r *http.Request) {
	if !c.running(w, r) {
		return
	}
	picture := screen()
	if r.URL.Query().Get("moveCursor") == "true" {
		picture = picture.SubImage(image.Rect(0, 0, 20, 10)).(*image.RGBA) // for the script to see
	}
	w.Header().Set("Content-Type", "image/png")
	if err := png.Encode(w, picture); err != nil {
		panic(err) // ends the request; net/http logs it
	}
}

func (c *cluster) vnc(w http.ResponseWriter, r *http.Request) {
	if !c.running(w, r) {
		return
	}
	if r.URL.Query().Get("preserveSession") == "true" {
		refuse(w, apierrors.NewServiceUnavailable("the VNC session is in use"))
		return
	}
	conn, err := stream.Accept(w, r, stream.Options{})
	if err != nil {
		return
	}
	c.work.Add(1)
	defer c.work.Done()
	if err := rfbtest.New(screen()).Serve(conn); err != nil {
		return // whoever wrote what is no VNC sees the stream end
	}
}

// viewer is a VNC viewer that writes the size of the screen it sees to the file "seen". Its arguments are HOST::PORT,
// or through and a command line that prints {"port":N} once it listens there; that program must end by itself.
func viewer() {
	if err := view(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "viewer:", err)
		os.Exit(1)
	}
}

func view(args []string) error {
	if args[0] != "through" {
		return look(strings.Replace(args[0], "::", ":", 1))
	}
	program := exec.Command(args[1], args[2:]...)
	program.Stderr = os.Stderr
	out, err := program.StdoutPipe()
	if err == nil {
		err = program.Start()
	}
	if err != nil {
		return err
	}
	var proxy struct{ Port int }
	if err := json.NewDecoder(out).Decode(&proxy); err != nil {
		return errors.Join(err, program.Wait())
	}
	return errors.Join(look(fmt.Sprintf("127.0.0.1:%d", proxy.Port)), program.Wait())
}

func look(address string) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	c, err := rfb.Open(conn, false)
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	if _, err := c.Next(); err != nil {
		return err
	}
	var corner color.Color
	c.View(func(screen *image.RGBA) { corner = screen.At(0, 0) })
	width, height := c.Size()
	return os.WriteFile("seen", fmt.Appendf(nil, "%d×%d %v\n", width, height, corner), 0o600)
}

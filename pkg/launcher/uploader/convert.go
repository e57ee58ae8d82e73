package uploader

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"

	"github.com/virtkit/virtkit/pkg/vm/imageformat"
)

// drivers are QEMU's names of the formats.
var drivers = map[imageformat.Format]string{
	imageformat.QCOW2: "driver=qcow2", imageformat.VMDK: "driver=vmdk",
	// Else QEMU computes the size from the geometry, which cannot say every size.
	imageformat.VHD:  "driver=vpc,force_size_calc=current_size",
	imageformat.VHDX: "driver=vhdx",
}

// maxWords is the most that is kept of qemu-img's output, bytes.
const maxWords = 1 << 10

// convert has qemu-img write the disk of an image to a file or device, which is zero where zero says so. The names are
// our own, and the format is given: nothing is detected from the image's contents.
func (o Options) convert(
	ctx context.Context, image string, format imageformat.Format, to string, zero bool,
) error {
	source := drivers[format] + ",file.driver=file,file.filename=" + image
	if format == imageformat.QCOW2 {
		source += ",backing=" // none, whatever the header says by now
	}
	ctx, cancel := context.WithTimeout(ctx, o.ConvertLimit)
	defer cancel()
	if format == imageformat.QCOW2 {
		// Else what is missing of a damaged image is zero on the disk, and nobody learns of it.
		const leaks = 3 // clusters that nobody uses
		if said, err := o.run(ctx, "check", "-q", "--image-opts", source); err != nil && exitCode(err) != leaks {
			return o.why(ctx, err, said, "the qcow2 image is damaged: repair it first, with qemu-img check -r all")
		}
	}
	args := []string{"convert", "--image-opts", "-O", "raw", "-n", "-S", "4k"}
	if zero {
		args = append(args, "--target-is-zero")
	}
	said, err := o.run(ctx, append(args, source, to)...)
	if err != nil {
		return o.why(ctx, err, said, fmt.Sprintf("qemu-img cannot convert the %s image, which may be damaged", format))
	}
	return nil
}

// run runs qemu-img, confined, and returns what it said.
func (o Options) run(ctx context.Context, args ...string) (said string, err error) {
	command := append(append([]string{}, o.Confined...), o.QEMUImg)
	command = append(command, args...)
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	words := &bounded{}
	cmd.Stdout, cmd.Stderr = words, words
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin", "LANG=C.UTF-8"}
	err = cmd.Run()
	return words.String(), err
}

func exitCode(err error) int {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	return -1
}

// why returns why qemu-img has failed.
func (o Options) why(ctx context.Context, err error, said, sentence string) error {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("the image was not converted in %s", o.ConvertLimit)
	case saysFull(said):
		return errFull
	case said == "":
		said = err.Error()
	}
	return fmt.Errorf("%s: %s", sentence, said)
}

// bounded keeps the beginning of what is written to it.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	_, _ = b.Buffer.Write(p[:min(len(p), max(maxWords-b.Len(), 0))]) // never fails
	return len(p), nil
}

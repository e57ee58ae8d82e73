// Package guestfscmd is `virtctl guestfs`: the programs of libguestfs at the disk of a claim.
package guestfscmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/virtkit/virtkit/pkg/client/action"
	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/guestfs"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
	"github.com/virtkit/virtkit/pkg/client/cli/terminal"
	"github.com/virtkit/virtkit/pkg/stream"
)

// Options of `virtctl guestfs`.
type Options struct {
	Factory *cli.Factory
	Claim   string
	Command []string

	Image      string
	PullPolicy string
	VM         string
	Stdin      bool
	Timeout    cli.Timeout

	kvm, root         bool
	uid, gid, fsGroup string
	kvmGiven          bool
	user              guestfs.User
}

var pullPolicies = []string{
	string(corev1.PullAlways), string(corev1.PullIfNotPresent), string(corev1.PullNever),
}

// NewCmdGuestfs makes the command.
func NewCmdGuestfs(f *cli.Factory) *cobra.Command {
	o := &Options{Factory: f, Timeout: cli.Timeout{Duration: 500 * time.Second, Unit: time.Second}}
	cmd := &cobra.Command{
		Use:   "guestfs PVC [-i] [-- COMMAND [ARGUMENT...]]",
		Short: "Look at and repair the disk on a claim with libguestfs",
		Long: `Look at and repair the disk on a PersistentVolumeClaim with the programs of libguestfs.

A pod with the claim is made, and deleted at the end: of the shell that runs in it, or of the command after --, whose
exit code is virtctl's. The claim is at /disk, with the disk in disk.img, or as the device /dev/vda. A claim that a
running VM or another pod uses is refused. No VM with the claim may be started meanwhile.

At a terminal all keys go to the shell. Otherwise the shell reads commands from standard input. A command gets standard
input with -i, and at a terminal that terminal.

The pod needs no privileges and no KVM, and passes Pod Security "restricted"; --root does not. A device is root's, or
that of the group disk. When the connection is lost the pod ends by itself, after 24 hours in any case.`,
		Example: cli.Examples(f.Program, `
			virtctl guestfs demo-disk
			virtctl guestfs demo-disk -- virt-cat --format=raw -a disk.img /etc/fstab
			virtctl guestfs demo-disk -i -- virt-customize --format raw -a disk.img --root-password file:/dev/stdin < pw
			virtctl guestfs demo-disk -i -- virt-rescue --format=raw -a disk.img
			echo 'virt-filesystems --format=raw -a disk.img --long' | virtctl guestfs demo-disk
			virtctl guestfs demo-disk --image quay.io/kubevirt/libguestfs-tools:v1.8.0`),
		ValidArgsFunction: complete(f),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.kvmGiven = cmd.Flags().Changed("kvm")
			if err := o.parse(cmd, args); err != nil {
				return err
			}
			return Run(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Image, "image", "", "The image with libguestfs; the cluster's unless given")
	flags.StringVar(&o.PullPolicy, "pull-policy", string(corev1.PullIfNotPresent),
		"When the image is pulled: "+strings.Join(pullPolicies, ", "))
	flags.BoolVar(&o.kvm, "kvm", false, "Use a node's KVM; unless given, where a node offers it")
	flags.BoolVar(&o.root, "root", false, "Run as root, which Pod Security may not allow")
	flags.StringVar(&o.uid, "uid", "", "Run as the user of this number; virt-launcher's, 107, unless given")
	flags.StringVar(&o.gid, "gid", "", "Run as the group of this number; needs --uid")
	flags.StringVar(&o.fsGroup, "fsGroup", "", "The group of this number gets the claim's files; 107 unless given")
	flags.StringVar(&o.VM, "vm", "", "Run where this `VM` may run: its node selector, affinity and tolerations")
	flags.BoolVarP(&o.Stdin, "stdin", "i", false, "Send standard input to the command")
	flags.Var(&o.Timeout, "timeout", "How long to wait for the pod to run; 0 is no limit")
	cli.CompleteFlag(cmd, "pull-policy", pullPolicies...)
	completioncmd.Flag(cmd, "vm", completioncmd.VMs(f, -1))
	return cmd
}

// complete completes the claim.
func complete(f *cli.Factory) cobra.CompletionFunc {
	claims := completioncmd.Claims(f)
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return claims(cmd, nil, word)
	}
}

func (o *Options) parse(cmd *cobra.Command, args []string) error {
	switch dash := cmd.ArgsLenAtDash(); {
	case len(args) == 0 || dash == 0:
		return cli.UsageErrorf("%s needs the name of a claim", cmd.CommandPath())
	case dash < 0 && len(args) > 1, dash > 1:
		return cli.UsageErrorf("put -- before the command: %s %s -- %s", cmd.CommandPath(), args[0], args[1])
	case dash == len(args):
		return cli.UsageErrorf("%s needs a command after --, or leave -- out for a shell", cmd.CommandPath())
	}
	o.Claim, o.Command = strings.TrimPrefix(args[0], "pvc/"), args[1:]
	switch {
	case len(content.IsDNS1123Subdomain(o.Claim)) > 0:
		return cli.UsageErrorf("%q is not the name of a claim", o.Claim)
	case o.Stdin && len(o.Command) == 0:
		return cli.UsageErrorf("-i is of a command; give one after --, or leave -i out: the shell has standard input")
	case !slices.Contains(pullPolicies, o.PullPolicy):
		return cli.UsageErrorf("--pull-policy: %q is not one of %s", o.PullPolicy, strings.Join(pullPolicies, ", "))
	case o.root && (o.uid != "" || o.gid != "" || o.fsGroup != ""):
		return cli.UsageErrorf("--root is user and group 0; leave out --uid, --gid and --fsGroup, or --root")
	case o.gid != "" && o.uid == "":
		return cli.UsageErrorf("--gid needs the user, too: give --uid")
	}
	o.user.Root = o.root
	for flag, number := range map[string]struct {
		text string
		into **int64
	}{
		"uid": {o.uid, &o.user.UID}, "gid": {o.gid, &o.user.GID}, "fsGroup": {o.fsGroup, &o.user.FSGroup},
	} {
		if number.text == "" {
			continue
		}
		id, err := strconv.ParseUint(number.text, 10, 31)
		if err != nil {
			return cli.UsageErrorf("--%s: %q is not a number from 0 to 2147483647", flag, number.text)
		}
		*number.into = new(int64(id))
	}
	if o.user.UID != nil && *o.user.UID == 0 {
		return cli.UsageErrorf("--uid: user 0 is root; give --root instead")
	}
	return nil
}

// Run opens a session at the claim, and ends with the exit code of what runs in it.
func Run(ctx context.Context, o *Options) (err error) {
	c, namespace, err := o.Factory.Scope()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGQUIT)
	defer stop()
	signal.Ignore(syscall.SIGPIPE) // a reader that leaves is an error, after which the pod is deleted
	plan, err := o.plan(ctx, c, namespace)
	if err != nil {
		return o.hinted(err)
	}
	streams := o.Factory.IO
	fmt.Fprintf(streams.ErrOut, "Use image: %s\n", plan.Image)
	if remark := guestfs.Remark(plan.Claim); remark != "" {
		fmt.Fprintf(streams.ErrOut, "note: %s\n", remark)
	}
	var session *guestfs.Session
	waiting := cli.Waiting{Timeout: o.Timeout}
	err = waiting.Stages(ctx, streams, "waiting for the pod", func(ctx context.Context, report func(string)) error {
		session, err = guestfs.Open(ctx, c, plan, report)
		return err
	})
	if err != nil {
		return o.hinted(err)
	}
	defer func() {
		closed := streams.While("deleting the pod", func() error { return session.Close(ctx) })
		switch {
		case err == nil:
			err = closed
		case closed != nil:
			fmt.Fprintf(streams.ErrOut, "warning: %s\n", closed)
		}
	}()
	if guestfs.Block(plan.Claim) {
		if err := o.checkDevice(ctx, session); err != nil {
			return err
		}
	}
	return o.run(ctx, session, guestfs.Block(plan.Claim))
}

// plan looks at what the pod is made from.
func (o *Options) plan(ctx context.Context, c *client.Client, namespace string) (guestfs.Plan, error) {
	plan := guestfs.Plan{
		Image: o.Image, PullPolicy: corev1.PullPolicy(o.PullPolicy), KVM: o.kvm, User: o.user,
	}
	var err error
	if plan.Claim, err = guestfs.Claim(ctx, c, namespace, o.Claim); err != nil {
		return plan, err
	}
	if o.VM != "" {
		if plan.VM, err = c.VM(ctx, namespace, o.VM); err != nil {
			return plan, fmt.Errorf("look at VM %s/%s: %w", namespace, o.VM, err)
		}
	}
	if plan.Image == "" {
		if plan.Image, err = guestfs.Image(ctx, c); err != nil {
			return plan, err
		}
	}
	if !o.kvmGiven {
		plan.KVM, err = guestfs.Offered(ctx, c)
	}
	return plan, err
}

// hinted adds to an error the flag or command that mends it.
func (o *Options) hinted(err error) error {
	var used *guestfs.InUseError
	var image *guestfs.ImageError
	switch {
	case errors.As(err, &image):
		return fmt.Errorf("%w; bring it to the nodes or to its registry, or name another with --image", err)
	case errors.Is(err, guestfs.ErrNoImage):
		return fmt.Errorf("%w; name one with --image", err)
	case errors.As(err, &used) && used.By.Kind == "":
		return fmt.Errorf("%w; stop it with `%s stop %s%s`", err, o.Factory.Program, used.By.Name,
			o.Factory.InNamespace(used.Namespace))
	case errors.As(err, &used):
		return fmt.Errorf("%w; wait until that has ended, or end it", err)
	}
	return err
}

// checkDevice looks whether the pod's user may open the claim's device: most nodes make it root's.
func (o *Options) checkDevice(ctx context.Context, session *guestfs.Session) error {
	look := guestfs.Program{
		Command: []string{"/bin/bash", "-c", "[[ -r " + guestfs.Device + " && -w " + guestfs.Device + " ]]"},
		Stdout:  o.Factory.IO.Out, Stderr: o.Factory.IO.ErrOut,
	}
	var exit *stream.ProcessExitError
	err := session.Run(ctx, look)
	switch {
	case errors.As(err, &exit) && exit.Code != 1: // it is the shell that fails
		return fmt.Errorf("look at the device of PVC %s: %w", o.Claim, err)
	case exit != nil:
		return fmt.Errorf("%s may not open the device of PVC %s: the node gives devices to root; give --root, in a "+
			"namespace whose Pod Security allows it", o.user, o.Claim)
	}
	return err
}

// run runs the shell or the command.
func (o *Options) run(ctx context.Context, session *guestfs.Session, block bool) error {
	streams := o.Factory.IO
	program := guestfs.Program{Command: o.Command, Stdout: streams.RawOut(), Stderr: streams.RawErr()}
	term := terminal.New(streams)
	defer term.Restore()
	if o.Stdin || len(o.Command) == 0 {
		in, stop := terminal.Cancellable(streams.In)
		if stop != nil {
			defer stop()
		}
		program.Stdin = in
		if term.Is() && streams.OutIsTTY {
			program.Resizes = term.Resizes
		}
	}
	if len(o.Command) == 0 {
		program.Command = []string{"/bin/bash"}
		where := guestfs.Directory
		if block {
			where = guestfs.Device
		}
		fmt.Fprintf(streams.ErrOut, "The PVC has been mounted at %s\n", where)
	}
	if program.Resizes != nil {
		kind := "TERM=" + cmp.Or(o.Factory.Getenv("TERM"), "dumb")
		program.Command = append([]string{"/usr/bin/env", kind}, program.Command...)
		if err := term.Raw(); err != nil {
			return err
		}
	}
	err := session.Run(ctx, program)
	term.Restore()
	var exit *stream.ProcessExitError
	switch {
	case errors.As(err, &exit):
		return &cli.ExitError{Code: exit.Code}
	case errors.Is(err, syscall.EPIPE):
		return nil // whoever read our output has had enough
	case errors.Is(err, action.ErrLost):
		return fmt.Errorf("%w; what ran at the claim was ended", err)
	}
	return err
}

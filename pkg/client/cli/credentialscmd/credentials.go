// Package credentialscmd is `virtctl credentials`: keys and passwords of a guest's users.
package credentialscmd

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/client/action/credentials"
	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
)

// Verb is the change to make.
type Verb string

// The verbs.
const (
	AddSSHKey    Verb = "add-ssh-key"
	RemoveSSHKey Verb = "remove-ssh-key"
	SetPassword  Verb = "set-password"
)

// Options of the three verbs.
type Options struct {
	Factory *cli.Factory
	Output  *cli.Output
	Verb    Verb
	Name    string

	User, Secret           string
	Create, Update, Force  bool
	File, Value            string
	Password, PasswordFile string
	DryRun                 cli.DryRun
}

// NewCmdCredentials makes `virtctl credentials`.
func NewCmdCredentials(f *cli.Factory) *cobra.Command {
	cmd := cli.Group(&cobra.Command{
		Use:   "credentials",
		Short: "Change the SSH keys and passwords of a virtual machine's users",
		Long: `Change the SSH keys and passwords of a virtual machine's users, while it runs.

They are kept in Secrets that spec.accessCredentials of the VM names, and the guest agent brings them into the
guest: within a minute or two of the change, and after every boot.`,
	})
	cmd.AddCommand(NewCmdAddSSHKey(f), NewCmdRemoveSSHKey(f), NewCmdSetPassword(f))
	return cmd
}

// NewCmdAddSSHKey makes `virtctl credentials add-ssh-key`.
func NewCmdAddSSHKey(f *cli.Factory) *cobra.Command {
	o := &Options{Factory: f, Verb: AddSSHKey}
	cmd := o.command("Let a user log in with an SSH key", `Let a user of the guest log in with an SSH key.

The key is added to the Secret that the VM names for the user. When it names none, one is made and named; a guest
that runs gets that after its next restart, which --force agrees to.

The guest agent replaces the user's authorized_keys: after that only the keys of such Secrets let the user in, and no
more those that cloud-init brought.`, `
		virtctl credentials add-ssh-key --user root --file ~/.ssh/id_ed25519.pub demo
		virtctl credentials add-ssh-key --user root --value "ssh-ed25519 AAAA..." demo
		virtctl credentials add-ssh-key --create-secret --user root --file key.pub --force demo`)
	o.keyFlags(cmd)
	cmd.Flags().BoolVar(&o.Create, "create-secret", false, "Make a new Secret for the key; a VM that runs needs "+
		"--force, and a restart")
	cmd.Flags().BoolVar(&o.Update, "update-secret", false, "Add the key to a Secret that the VM names already, and "+
		"never make one")
	return cmd
}

// NewCmdRemoveSSHKey makes `virtctl credentials remove-ssh-key`.
func NewCmdRemoveSSHKey(f *cli.Factory) *cobra.Command {
	o := &Options{Factory: f, Verb: RemoveSSHKey}
	cmd := o.command("Take an SSH key from a user", `Take an SSH key from a user of the guest, in all Secrets that the VM names for the user.`, `
		virtctl credentials remove-ssh-key --user root --file ~/.ssh/id_ed25519.pub demo
		virtctl credentials remove-ssh-key --user root --value "ssh-ed25519 AAAA..." --secret keys demo`)
	o.keyFlags(cmd)
	return cmd
}

// NewCmdSetPassword makes `virtctl credentials set-password`.
func NewCmdSetPassword(f *cli.Factory) *cobra.Command {
	o := &Options{Factory: f, Verb: SetPassword}
	cmd := o.command("Set the password of a user", `Set the password of a user of the guest.

Others on this machine may see the command line, with --password in it; --password-file - reads it from standard
input instead.`, `
		virtctl credentials set-password --user root --password-file - demo < password
		virtctl credentials set-password --user root --password secret --create-secret demo`)
	cmd.Flags().StringVarP(&o.Password, "password", "p", "", "The new `PASSWORD`")
	cmd.Flags().StringVar(&o.PasswordFile, "password-file", "", "Read the new password from this `FILE`, or from "+
		"standard input when it is -")
	cmd.Flags().BoolVar(&o.Create, "create-secret", false, "Make a new Secret for the password; a VM that runs needs "+
		"--force, and a restart")
	return cmd
}

func (o *Options) command(short, long, examples string) *cobra.Command {
	o.Output = cli.NewOutput()
	force := "Change a Secret that is not the VM's own"
	if o.Verb != RemoveSSHKey {
		force += "; name a new one in a VM that runs"
	}
	cmd := &cobra.Command{
		Use:               string(o.Verb) + " NAME",
		Short:             short,
		Long:              long,
		Example:           cli.Examples(o.Factory.Program, examples),
		Args:              cli.Args(1, 1, "the name of one VM"),
		ValidArgsFunction: completioncmd.VMs(o.Factory, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Name = args[0]
			if err := o.validate(); err != nil {
				return err
			}
			return Run(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVarP(&o.User, "user", "u", "", "Name of the guest's `USER`")
	cmd.Flags().
		StringVar(&o.Secret, "secret", "", "Name of the `SECRET` to change, where the VM names several for the user")
	cmd.Flags().BoolVar(&o.Force, "force", false, force)
	o.DryRun.AddFlag(cmd)
	o.Output.AddFlags(cmd)
	return cmd
}

func (o *Options) keyFlags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.File, "file", "f", "", "`FILE` with the SSH public key")
	cmd.Flags().StringVar(&o.Value, "value", "", "The SSH public `KEY` itself")
	if err := cmd.MarkFlagFilename("file", "pub"); err != nil {
		panic(err) // no such flag: a programming error
	}
}

func (o *Options) validate() error {
	switch {
	case o.User == "":
		return cli.UsageErrorf("--user is missing; it names the user in the guest")
	case o.Create && o.Update:
		return cli.UsageErrorf("--create-secret and --update-secret contradict each other; give one")
	case o.File != "" && o.Value != "":
		return cli.UsageErrorf("--file and --value cannot both be given")
	case o.Password != "" && o.PasswordFile != "":
		return cli.UsageErrorf("--password and --password-file cannot both be given")
	case o.Verb != SetPassword && o.File == "" && o.Value == "":
		return cli.UsageErrorf("the key is missing; give it with --file or --value")
	case o.Verb == SetPassword && o.Password == "" && o.PasswordFile == "":
		return cli.UsageErrorf("the password is missing; give it with --password or --password-file")
	case o.DryRun == cli.DryRunClient:
		return cli.UsageErrorf("--dry-run=client cannot know what the Secrets have; use --dry-run=server")
	}
	return o.Output.Validate()
}

// Run does it and says what has changed.
func Run(ctx context.Context, o *Options) error {
	target, err := o.Factory.Target(o.Name)
	if err != nil {
		return err
	}
	if target.Instance {
		return cli.UsageErrorf("%q: only a VM has credentials that can be changed", o.Name)
	}
	do, err := o.action() // before the cluster is asked for anything
	if err != nil {
		return err
	}
	c, err := o.Factory.Client()
	if err != nil {
		return err
	}
	change, err := do(ctx, c, credentials.Options{
		Namespace: target.Namespace, VM: target.Name, User: o.User, Secret: o.Secret,
		Create: o.Create, Update: o.Update, Force: o.Force,
		DryRun: o.DryRun == cli.DryRunServer, RandomName: o.Factory.RandomName,
	})
	if err != nil {
		return err
	}
	if o.Output.Given() {
		return o.Output.Print(change, o.Factory.IO.Out)
	}
	return o.report(change)
}

type actionFunc func(context.Context, *client.Client, credentials.Options) (*credentials.Change, error)

func (o *Options) action() (actionFunc, error) {
	if o.Verb == SetPassword {
		password := o.Password
		if o.PasswordFile != "" {
			text, err := o.read("--password-file", o.PasswordFile)
			if err != nil {
				return nil, err
			}
			password = strings.TrimRight(text, "\r\n")
		}
		return func(ctx context.Context, c *client.Client, a credentials.Options) (*credentials.Change, error) {
			return credentials.SetPassword(ctx, c, a, password)
		}, nil
	}
	text, flag := o.Value, "--value"
	if o.File != "" {
		var err error
		flag = "--file " + o.File
		if text, err = o.read("--file", o.File); err != nil {
			return nil, err
		}
	}
	keys, err := credentials.ParseKeys(text)
	if err != nil {
		return nil, cli.UsageErrorf("%s: %s", flag, err)
	}
	do := credentials.AddKeys
	if o.Verb == RemoveSSHKey {
		do = credentials.RemoveKeys
	}
	return func(ctx context.Context, c *client.Client, a credentials.Options) (*credentials.Change, error) {
		return do(ctx, c, a, keys)
	}, nil
}

// maxFile bounds what is read of a file, bytes.
const maxFile = 1 << 20

func (o *Options) read(flag, name string) (string, error) {
	in, err := cli.OpenFile(o.Factory.IO.In, flag, name)
	if err != nil {
		return "", err
	}
	defer in.Close()
	data, err := io.ReadAll(io.LimitReader(in, maxFile))
	if err != nil {
		return "", cli.Unreadable(flag, name, err)
	}
	return string(data), nil
}

// report prints the change, in KubeVirt's words where it has some.
func (o *Options) report(change *credentials.Change) error {
	w, suffix := o.Factory.IO.Out, o.DryRun.Suffix()
	if len(change.Secrets) == 0 {
		_, err := fmt.Fprintf(w, "No secrets associated with user %s\n", o.User)
		return err
	}
	for _, s := range change.Secrets {
		var text string
		switch {
		case o.Verb == RemoveSSHKey && s.Change == credentials.Updated:
			text = fmt.Sprintf("Successfully removed the key from secret %q", s.Name)
		case o.Verb == RemoveSSHKey:
			text = fmt.Sprintf("Secret %q does not contain this SSH key.", s.Name)
		case o.Verb == SetPassword && s.Change != credentials.Unchanged:
			text = fmt.Sprintf("Successfully set password in secret %q", s.Name)
		case o.Verb == SetPassword:
			text = fmt.Sprintf("Secret %q already contains this password.", s.Name)
		case s.Change == credentials.Unchanged:
			text = fmt.Sprintf("Secret %q already contains this SSH key.", s.Name)
		default:
			text = fmt.Sprintf("Successfully added the key to secret %q", s.Name)
		}
		if _, err := fmt.Fprintln(w, text+suffix); err != nil {
			return err
		}
	}
	if change.RestartRequired && o.Factory.IO.ErrIsTTY {
		fmt.Fprintf(o.Factory.IO.ErrOut, "The guest gets it after `%s restart %s%s`.\n", o.Factory.Program, change.Name,
			o.Factory.InNamespace(change.Namespace))
	}
	return nil
}

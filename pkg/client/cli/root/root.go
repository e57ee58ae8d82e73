// Package root puts virtctl's command tree together and runs it: the connection flags, the commands, and the
// one place where an error becomes a message and an exit code.
package root

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/admcmd"
	"github.com/virtkit/virtkit/pkg/client/cli/backupcmd"
	"github.com/virtkit/virtkit/pkg/client/cli/clonecmd"
	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
	"github.com/virtkit/virtkit/pkg/client/cli/consolecmd"
	"github.com/virtkit/virtkit/pkg/client/cli/cpcmd"
	"github.com/virtkit/virtkit/pkg/client/cli/createcmd"
	"github.com/virtkit/virtkit/pkg/client/cli/credentialscmd"
	"github.com/virtkit/virtkit/pkg/client/cli/dashboardcmd"
	"github.com/virtkit/virtkit/pkg/client/cli/describecmd"
	"github.com/virtkit/virtkit/pkg/client/cli/diffcmd"
	"github.com/virtkit/virtkit/pkg/client/cli/doctorcmd"
	"github.com/virtkit/virtkit/pkg/client/cli/editcmd"
	"github.com/virtkit/virtkit/pkg/client/cli/evacuatecmd"
	"github.com/virtkit/virtkit/pkg/client/cli/eventscmd"
	"github.com/virtkit/virtkit/pkg/client/cli/execcmd"
	"github.com/virtkit/virtkit/pkg/client/cli/expandcmd"
	"github.com/virtkit/virtkit/pkg/client/cli/expectcmd"
	"github.com/virtkit/virtkit/pkg/client/cli/exposecmd"
	"github.com/virtkit/virtkit/pkg/client/cli/firewallcmd"
	"github.com/virtkit/virtkit/pkg/client/cli/guestcmd"
	"github.com/virtkit/virtkit/pkg/client/cli/guestfscmd"
	"github.com/virtkit/virtkit/pkg/client/cli/imagecmd"
	"github.com/virtkit/virtkit/pkg/client/cli/imageuploadcmd"
	"github.com/virtkit/virtkit/pkg/client/cli/installcmd"
	"github.com/virtkit/virtkit/pkg/client/cli/lifecyclecmd"
	"github.com/virtkit/virtkit/pkg/client/cli/listcmd"
	"github.com/virtkit/virtkit/pkg/client/cli/logscmd"
	"github.com/virtkit/virtkit/pkg/client/cli/memorydumpcmd"
	"github.com/virtkit/virtkit/pkg/client/cli/objectgraphcmd"
	"github.com/virtkit/virtkit/pkg/client/cli/permittedcmd"
	"github.com/virtkit/virtkit/pkg/client/cli/portforwardcmd"
	"github.com/virtkit/virtkit/pkg/client/cli/scalecmd"
	"github.com/virtkit/virtkit/pkg/client/cli/setcmd"
	"github.com/virtkit/virtkit/pkg/client/cli/snapshotcmd"
	"github.com/virtkit/virtkit/pkg/client/cli/sshcmd"
	"github.com/virtkit/virtkit/pkg/client/cli/templatecmd"
	"github.com/virtkit/virtkit/pkg/client/cli/topcmd"
	"github.com/virtkit/virtkit/pkg/client/cli/usbredircmd"
	"github.com/virtkit/virtkit/pkg/client/cli/versioncmd"
	"github.com/virtkit/virtkit/pkg/client/cli/vmexportcmd"
	"github.com/virtkit/virtkit/pkg/client/cli/vnccmd"
	"github.com/virtkit/virtkit/pkg/client/cli/volumecmd"
	"github.com/virtkit/virtkit/pkg/client/cli/waitcmd"
	"github.com/virtkit/virtkit/pkg/client/cli/whycmd"
	"github.com/virtkit/virtkit/pkg/version"
)

//go:generate go run ./gen ../../../..

// Main runs virtctl with the process's arguments and streams and returns its exit code.
func Main() int {
	f := cli.NewFactory(cli.DisplayName(os.Args[0]), cli.SystemStreams(os.Getenv), os.Getenv)
	ctx, stop := untilSignal()
	defer stop()
	logTo(f.IO.ErrOut)
	pingSoon()
	return Run(ctx, f, os.Args[1:])
}

// untilSignal returns a context that the first signal ends, which asks the command to end: it may have something to put
// away. A later one ends the process.
func untilSignal() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), endings()...)
	context.AfterFunc(ctx, func() { time.AfterFunc(oneWish, stop) })
	return ctx, stop
}

// oneWish is how long after a signal another one is the same wish: timeout(1) sends it to the process and to its group,
// and fingers press ctrl-C twice. A test has another time.
var oneWish = time.Second

// endings are the signals that ask for an end. A hangup that the caller has us ignore, as nohup(1) does, stays ignored.
func endings() []os.Signal {
	all := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		all = append(all, syscall.SIGHUP)
	}
	return all
}

// pingSoon makes client-go ping a silent connection after 10 s instead of 30 s, and give it up after 5 s instead of 15
// s, so that whatever follows something notices soon that the API server hangs. The environment variables are
// client-go's; values of the user's stay.
func pingSoon() {
	for name, seconds := range map[string]string{
		"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "10", "HTTP2_PING_TIMEOUT_SECONDS": "5",
	} {
		if os.Getenv(name) == "" {
			_ = os.Setenv(name, seconds) // fails for names that are none
		}
	}
}

// Run runs one command line and returns the exit code. What went wrong has been written to f.IO.ErrOut.
func Run(ctx context.Context, f *cli.Factory, args []string) int {
	cmd := NewCommand(f)
	cmd.SetArgs(args)
	defer f.IO.Flush()
	chosen, err := execute(ctx, cmd)
	lifecyclecmd.NoteRest(f, chosen)
	if err == nil {
		err = f.IO.Lost()
	}
	if err == nil {
		return cli.ExitOK
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	report(f, chosen, err)
	return exitCode(f, err)
}

// envCompat is the variable by which scripts that were written for KubeVirt's virtctl have its exit code for every
// failure, and its errors without a prefix; docs/output.md.
const envCompat = "VIRTCTL_COMPAT"

func likeKubeVirt(f *cli.Factory) bool { return f.Getenv(envCompat) == "kubevirt" }

func exitCode(f *cli.Factory, err error) int {
	code := cli.ExitCode(err)
	if code != cli.ExitOK && likeKubeVirt(f) {
		return cli.ExitFailure
	}
	return code
}

// execute runs the command that root's arguments choose. The help of a command that there is not, which cobra takes for
// a wish for its parent's, is refused.
func execute(ctx context.Context, root *cobra.Command) (*cobra.Command, error) {
	chosen, err := root.ExecuteContextC(ctx)
	if err == nil {
		err = unknown(chosen)
	}
	return chosen, err
}

// report prints err, a line for each thing that went wrong.
func report(f *cli.Factory, cmd *cobra.Command, err error) {
	var exit *cli.ExitError
	if errors.As(err, &exit) && exit.Err == nil {
		return
	}
	if errors.Is(err, context.Canceled) {
		return // the user knows
	}
	prefix := "error: "
	if likeKubeVirt(f) {
		prefix = ""
	}
	var usage *cli.UsageError
	if errors.As(err, &usage) {
		fmt.Fprintf(f.IO.ErrOut, "%s%s\nSee '%s --help'.\n", prefix, usage, cmd.CommandPath())
		return
	}
	for line := range strings.SplitSeq(cli.Explain(err, f.Connection()), "\n") {
		fmt.Fprintf(f.IO.ErrOut, "%s%s\n", prefix, line)
	}
}

// Command groups in the help, in this order.
const (
	groupVM      = "vm"
	groupAccess  = "access"
	groupCluster = "cluster"
	groupOther   = "other"
)

// NewCommand returns the whole tree.
func NewCommand(f *cli.Factory) *cobra.Command {
	root := cli.Group(&cobra.Command{
		Use:   "virtctl",
		Short: "Run virtual machines on Kubernetes",
		Long: fmt.Sprintf(`%s runs virtual machines on Kubernetes.

It takes kubectl's own flags to choose the cluster, the context and the namespace; "%[1]s options" lists
them. Data goes to stdout and everything else to stderr. Exit codes: 0 ok, 1 failure, 2 usage,
3 not found, 4 not allowed, 8 timed out, 130 interrupted, 255 lost the connection to a guest.`, f.Program),
		Version:           version.Get().GitVersion,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	})
	if f.Program != "virtctl" {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: f.Program}
	}
	root.SetIn(f.IO.In)
	root.SetOut(f.IO.Out)
	root.SetErr(f.IO.ErrOut)
	root.Flags().Bool("version", false, "Show the version of this program")
	root.SetVersionTemplate(f.Program + " {{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if reportsOutages(cmd) {
			cmd.SetContext(f.ReportOutages(cmd.Context()))
		}
		lifecyclecmd.NoteChanges(f, cmd)
		return checkFlags(cmd)
	}
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		writeUsage(cmd.OutOrStderr(), cmd, helpWidth(f.IO))
		return nil
	})
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) { help(cmd, helpWidth(f.IO)) })
	root.SetHelpCommand(newCmdHelp())

	f.Flags.AddFlags(root.PersistentFlags())
	addVerbosity(root.PersistentFlags(), f)
	addFlagCompletions(root, f)

	root.AddGroup(
		&cobra.Group{ID: groupVM, Title: "Virtual machines:"},
		&cobra.Group{ID: groupAccess, Title: "Getting into them:"},
		&cobra.Group{ID: groupCluster, Title: "The cluster:"},
		&cobra.Group{ID: groupOther, Title: "Other commands:"},
	)
	root.SetHelpCommandGroupID(groupOther)
	addCommands(root, f)
	return root
}

// reportsOutages reports whether a command's outages are reported by lines on standard error. The dashboard and what
// gets into a guest show theirs in their own way, where the terminal may be the guest's.
func reportsOutages(cmd *cobra.Command) bool {
	for cmd.HasParent() && cmd.Parent().HasParent() {
		cmd = cmd.Parent()
	}
	return cmd.GroupID != groupAccess && cmd.Name() != "dashboard"
}

// addCommands registers the commands.
func addCommands(root *cobra.Command, f *cli.Factory) {
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
		}
		root.AddCommand(commands...)
	}
	add(groupVM,
		createcmd.NewCmdCreate(f),
		listcmd.NewCmdList(f),
		describecmd.NewCmdDescribe(f),
		eventscmd.NewCmdEvents(f),
		logscmd.NewCmdLogs(f),
		topcmd.NewCmdTop(f),
		lifecyclecmd.NewCmdStart(f),
		lifecyclecmd.NewCmdStop(f),
		lifecyclecmd.NewCmdRestart(f),
		lifecyclecmd.NewCmdPause(f),
		lifecyclecmd.NewCmdUnpause(f),
		lifecyclecmd.NewCmdReset(f),
		lifecyclecmd.NewCmdSoftReboot(f),
		lifecyclecmd.NewCmdMigrate(f),
		lifecyclecmd.NewCmdMigrateCancel(f),
		lifecyclecmd.NewCmdEvacuateCancel(f),
		lifecyclecmd.NewCmdRename(f),
		lifecyclecmd.NewCmdDelete(f),
		lifecyclecmd.NewCmdUndo(f),
		scalecmd.NewCmdScale(f, nil),
		setcmd.NewCmdSet(f),
		editcmd.NewCmdEdit(f),
		diffcmd.NewCmdDiff(f),
		waitcmd.NewCmdWait(f),
		expandcmd.NewCmdExpand(f),
		templatecmd.NewCmdTemplate(f),
		objectgraphcmd.NewCmdObjectGraph(f),
		firewallcmd.NewCmdFirewall(f),
		whycmd.NewCmdWhy(f),
		volumecmd.NewCmdAddVolume(f),
		volumecmd.NewCmdRemoveVolume(f),
		volumecmd.NewCmdVolume(f),
		memorydumpcmd.NewCmdMemoryDump(f),
		imagecmd.NewCmdImage(f),
		imageuploadcmd.NewCmdImageUpload(f),
		vmexportcmd.NewCmdVMExport(f),
		backupcmd.NewCmdExport(f),
		backupcmd.NewCmdImport(f),
		snapshotcmd.NewCmdSnapshot(f),
		clonecmd.NewCmdClone(f),
	)
	add(groupAccess,
		credentialscmd.NewCmdCredentials(f),
		execcmd.NewCmdExec(f),
		cpcmd.NewCmdCopy(f),
		guestfscmd.NewCmdGuestfs(f),
		guestcmd.NewCmdGuestOSInfo(f),
		guestcmd.NewCmdUserList(f),
		guestcmd.NewCmdFSList(f),
		consolecmd.NewCmdConsole(f),
		exposecmd.NewCmdExpose(f),
		portforwardcmd.NewCmdPortForward(f),
		vnccmd.NewCmdVNC(f),
		usbredircmd.NewCmdUSBRedir(f),
		expectcmd.NewCmdExpect(f),
		sshcmd.NewCmdSSH(f),
		sshcmd.NewCmdSCP(f),
	)
	add(groupCluster,
		admcmd.NewCmdAdm(f),
		dashboardcmd.NewCmdDashboard(f),
		installcmd.NewCmdInstall(f, nil),
		installcmd.NewCmdUninstall(f),
		evacuatecmd.NewCmdEvacuate(f),
		doctorcmd.NewCmdDoctor(f),
		permittedcmd.NewCmdPermittedDevices(f),
	)
	add(groupOther,
		versioncmd.NewCmdVersion(f),
		completioncmd.NewCmdCompletion(f),
		newCmdOptions(f),
	)
}

// addVerbosity registers kubectl's -v: from 6 on each HTTP request is logged to stderr, from 8 on its headers
// and body too.
func addVerbosity(flags *pflag.FlagSet, f *cli.Factory) {
	own := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(own)
	flags.VarP(&verbosity{own.Lookup("v").Value}, "v", "v", "Log level: 6 shows HTTP requests, 8 their content")
	// klog's remaining settings are not for users: everything goes to stderr, as it does by default.
}

// logTo sends the libraries' log, which shows what servers answer, to w, where all other text goes. What they log
// without being asked is about errors that the verbs report themselves. klog has one log for the process.
func logTo(w io.Writer) {
	own := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(own)
	for name, value := range map[string]string{
		"logtostderr": "false", "alsologtostderr": "false",
		"stderrthreshold": "FATAL", "one_output": "true",
	} {
		if err := own.Set(name, value); err != nil {
			panic(err) // no such flag: a programming error
		}
	}
	klog.SetOutput(asked{w})
}

// asked is a log that is written only with -v.
type asked struct{ io.Writer }

func (a asked) Write(p []byte) (int, error) {
	if !klog.V(1).Enabled() {
		return len(p), nil
	}
	return a.Writer.Write(p)
}

type verbosity struct{ flag.Value }

func (*verbosity) Type() string { return "level" }

func (v *verbosity) Set(s string) error {
	if _, err := strconv.ParseUint(s, 10, 8); err != nil {
		return fmt.Errorf("%q is not a number from 0 to 10", s)
	}
	return v.Value.Set(s)
}

//go:build lab

package lab

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/virtkit/virtkit/pkg/waits"
	"github.com/virtkit/virtkit/tests/instance"
	"github.com/virtkit/virtkit/tests/lab/machine"
)

const (
	// name is the instance of virt-local in the machine, as `make up` names it.
	name = "virt-local"
	// slow is the patience with a machine all of whose instructions are emulated.
	slow = "10"
	// bootTime and upTime are those of a usual machine.
	bootTime, upTime = time.Minute, 10 * time.Minute
)

// The machine under test, and the cluster in it as seen from here.
var (
	theMachine *machine.Machine
	theCluster *instance.Instance
)

func TestMain(m *testing.M) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := runTests(ctx, m)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		code = 1
	}
	os.Exit(code)
}

func runTests(ctx context.Context, m *testing.M) (code int, err error) {
	if os.Getenv(waits.Variable) == "" {
		if err := os.Setenv(waits.Variable, slow); err != nil {
			return 1, err
		}
	}
	factor, err := waits.Factor()
	if err != nil {
		return 1, err
	}
	// Kubernetes' clients, here and in virtctl, give a connection up when a ping is not answered within 15 s.
	if err := os.Setenv("HTTP2_PING_TIMEOUT_SECONDS", strconv.Itoa(15*factor)); err != nil {
		return 1, err
	}
	log.SetLogger(logr.Discard()) // controller-runtime's, which complains otherwise
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	end, err := enter(ctx)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, end()) }()
	if theCluster, err = connect(ctx); err != nil {
		return 1, err
	}
	// An interrupt ends the machine, and so whatever a test waits for.
	defer context.AfterFunc(ctx, func() { theMachine.Client.Close() })()
	return m.Run(), nil
}

// enter gives the machine, with what `make up` makes in it. The function ends it, unless it is to be kept.
func enter(ctx context.Context) (end func() error, err error) {
	root, err := filepath.Abs("../..")
	if err != nil {
		return nil, err
	}
	if kept := os.Getenv("LAB"); kept != "" {
		theMachine, err = machine.Attach(ctx, root, kept)
		return func() error { return nil }, err
	}
	keep := os.Getenv("LAB_KEEP") != ""
	step("a machine of its own")
	theMachine, err = machine.Start(ctx, machine.Options{
		Root: root, Keep: keep, Boot: waits.Scaled(bootTime), Log: step,
	})
	if err != nil {
		return nil, err
	}
	end = func() error {
		if keep {
			step("lab %s is kept: make lab-shell, LAB=%[1]s make lab, make lab-down", theMachine.Name)
			return nil
		}
		return theMachine.Stop()
	}
	step("what `make up` does, in it")
	within, cancel := context.WithTimeout(ctx, waits.Scaled(upTime))
	defer cancel()
	up := fmt.Sprintf("cd /opt/virtkit && %s=%s dev/up.sh %s 2 ghcr.io/virtkit %s", waits.Variable,
		os.Getenv(waits.Variable), name, instance.ImageTag())
	if err := theMachine.Run(within, nil, os.Stderr, os.Stderr, up); err != nil {
		return nil, errors.Join(err, end())
	}
	return end, nil
}

// connect makes clients of the cluster's API server, whose connections go by way of the machine.
func connect(ctx context.Context) (*instance.Instance, error) {
	text, err := theMachine.Output(ctx, "cat /root/.kube/config")
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.Load([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("read the lab's kubeconfig: %w", err)
	}
	cluster := config.Clusters[name]
	if cluster == nil {
		return nil, fmt.Errorf("the lab's kubeconfig has no cluster %s", name)
	}
	server, err := url.Parse(cluster.Server)
	if err != nil {
		return nil, err
	}
	local, err := theMachine.Forward(ctx, server.Host)
	if err != nil {
		return nil, err
	}
	cluster.TLSServerName, cluster.Server = server.Hostname(), "https://"+local
	kubeconfig := filepath.Join(theMachine.Dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		return nil, err
	}
	return instance.At(name, kubeconfig)
}

// step says what begins, as dev/step.sh does.
func step(format string, args ...any) {
	cmd := exec.Command("../../dev/step.sh", strings.Fields("lab: "+fmt.Sprintf(format, args...))...)
	cmd.Stderr = os.Stderr
	_ = cmd.Run() // a step that is not said is no failure
}

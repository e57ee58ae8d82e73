// Package env gives a test a real Kubernetes API server of its own: `virt-local control-plane`, with
// virtkit's custom resource definitions installed. There are no nodes, no kubelet and no scheduler; a
// test plays those (see kubelet.go). It needs bin/virt-local (`make build`) and no root, and starts in
// about two seconds.
package env

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	volumesnapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	exportv1beta1 "kubevirt.io/api/export/v1beta1"
	"kubevirt.io/api/migrations/v1alpha1"
	poolv1beta1 "kubevirt.io/api/pool/v1beta1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/manifests"
	"github.com/virtkit/virtkit/pkg/names"
)

// startTimeout is for a machine that is busy with other tests.
const startTimeout = 2 * time.Minute

// Environment is a running control plane.
type Environment struct {
	// Config is an administrator's.
	Config *rest.Config
	// Client knows Kubernetes' kinds, custom resource definitions and kubevirt.io/v1.
	Client client.WithWatch

	dir    string
	cmd    *exec.Cmd
	thread chan struct{} // closed to let the thread go that made the process
	output *buffer
}

// Start runs a control plane with the definitions and the namespace of virtkit in it. Arguments are
// passed to `virt-local control-plane`. The caller ends it with Stop.
func Start(ctx context.Context, arguments ...string) (*Environment, error) {
	e, err := StartBare(ctx, arguments...)
	if err != nil {
		return nil, err
	}
	if err := e.prepare(ctx); err != nil {
		return nil, errors.Join(err, e.Stop())
	}
	return e, nil
}

// StartBare is Start with nothing of virtkit in it.
func StartBare(ctx context.Context, arguments ...string) (*Environment, error) {
	binary, err := binary()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "virtkit-env-")
	if err != nil {
		return nil, err
	}
	e := &Environment{dir: dir, output: &buffer{}}
	if err := e.start(ctx, binary, arguments); err != nil {
		return nil, errors.Join(err, e.Stop())
	}
	return e, nil
}

// binary is bin/virt-local of the repository that the test is in.
func binary() (string, error) {
	directory, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; directory = filepath.Dir(directory) {
		candidate := filepath.Join(directory, "bin", "virt-local")
		if _, err := os.Stat(candidate); err == nil {
			return candidate, nil
		}
		if directory == filepath.Dir(directory) {
			return "", errors.New("bin/virt-local is missing: run `make build`")
		}
	}
}

func (e *Environment) start(ctx context.Context, binary string, arguments []string) error {
	ready, child, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	kubeconfig := filepath.Join(e.dir, "kubeconfig")
	e.cmd = exec.Command(binary, append([]string{
		"control-plane", "--dir", e.dir, "--kubeconfig", kubeconfig, "--ready-fd", "3",
	}, arguments...)...)
	e.cmd.ExtraFiles = []*os.File{child}
	e.cmd.Stdout, e.cmd.Stderr = e.output, e.output
	// It must not outlive a test that is killed.
	e.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	err = e.launch()
	child.Close()
	if err != nil {
		e.cmd = nil
		return fmt.Errorf("start %s: %w", binary, err)
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = ready.SetReadDeadline(time.Now()) })()
	if _, err := bufio.NewReader(ready).ReadString('\n'); err != nil {
		return fmt.Errorf("control plane is not ready: %w\n%s", errors.Join(err, ctx.Err()), e.output)
	}
	if e.Config, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		return fmt.Errorf("read kubeconfig: %w", err)
	}
	e.Config.QPS = -1
	scheme := runtime.NewScheme()
	err = errors.Join(clientgoscheme.AddToScheme(scheme), v1.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme),
		v1alpha1.AddToScheme(scheme), poolv1beta1.AddToScheme(scheme), cdiv1.AddToScheme(scheme),
		snapshotv1beta1.AddToScheme(scheme), exportv1beta1.AddToScheme(scheme), clonev1beta1.AddToScheme(scheme),
		volumesnapshotv1.AddToScheme(scheme))
	if err != nil {
		return err
	}
	e.Client, err = client.NewWithWatch(e.Config, client.Options{Scheme: scheme})
	return err
}

// launch starts the process from a thread that stays until Stop: the kernel sends Pdeathsig when the thread that
// made a process ends, and the tests of network namespaces throw threads away.
func (e *Environment) launch() error {
	started := make(chan error)
	e.thread = make(chan struct{})
	go func() {
		goruntime.LockOSThread()
		defer goruntime.UnlockOSThread()
		started <- e.cmd.Start()
		<-e.thread
	}()
	err := <-started
	if err != nil {
		close(e.thread)
	}
	return err
}

// prepare installs the definitions and waits until they are served.
func (e *Environment) prepare(ctx context.Context) error {
	files, err := fs.Glob(manifests.FS, "crds/*.yaml")
	if err != nil {
		return err
	}
	var definitions []*apiextensionsv1.CustomResourceDefinition
	for _, file := range files {
		if strings.HasSuffix(file, "kustomization.yaml") {
			continue
		}
		data, err := manifests.FS.ReadFile(file)
		if err != nil {
			return err
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(data, definition); err != nil {
			return fmt.Errorf("read %s: %w", file, err)
		}
		if err := e.Client.Create(ctx, definition); err != nil {
			return fmt.Errorf("create %s: %w", definition.Name, err)
		}
		definitions = append(definitions, definition)
	}
	for _, definition := range definitions {
		err := Eventually(ctx, func(ctx context.Context) (bool, error) {
			err := e.Client.Get(ctx, client.ObjectKeyFromObject(definition), definition)
			return established(definition), err
		})
		if err != nil {
			return fmt.Errorf("definition %s is not established: %w", definition.Name, err)
		}
	}
	return e.CreateNamespace(ctx, names.Namespace)
}

// CreateNamespace makes a namespace, unless it is there.
func (e *Environment) CreateNamespace(ctx context.Context, name string) error {
	err := e.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create namespace %s: %w", name, err)
	}
	return nil
}

func established(definition *apiextensionsv1.CustomResourceDefinition) bool {
	for _, condition := range definition.Status.Conditions {
		if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
			return true
		}
	}
	return false
}

// Stop ends the control plane and removes what it wrote.
func (e *Environment) Stop() error {
	var err error
	if e.cmd != nil {
		if signalErr := e.cmd.Process.Signal(syscall.SIGTERM); signalErr != nil &&
			!errors.Is(signalErr, os.ErrProcessDone) {
			err = signalErr
		}
		if waitErr := e.cmd.Wait(); waitErr != nil && err == nil {
			err = fmt.Errorf("control plane: %w\n%s", waitErr, e.output)
		}
		close(e.thread)
	}
	return errors.Join(err, os.RemoveAll(e.dir))
}

// Eventually polls until the condition holds, an error that is final comes, or half a minute is
// over; "not found" is not final.
func Eventually(ctx context.Context, condition wait.ConditionWithContextFunc) error {
	return wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, 30*time.Second, true,
		func(ctx context.Context) (bool, error) {
			done, err := condition(ctx)
			if apierrors.IsNotFound(err) {
				return false, nil
			}
			return done, err
		})
}

// buffer collects a process's output, of which the end is shown when it fails.
type buffer struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (b *buffer) Write(data []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(data)
}

// String is the last 4 KiB.
func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	data := b.all.Bytes()
	return string(data[max(0, len(data)-4096):])
}

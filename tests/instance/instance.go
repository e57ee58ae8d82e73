// Package instance gives tests and benchmarks a Kubernetes of their own with virtkit on it: a virt-local with two
// nodes under a random name, the images from bin/images, and `virtctl install`. It needs root and what `make build
// images` leaves in bin.
package instance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	snapshotsv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clonev1beta1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	instancetypev1beta1 "kubevirt.io/api/instancetype/v1beta1"
	migrationsv1alpha1 "kubevirt.io/api/migrations/v1alpha1"
	poolv1beta1 "kubevirt.io/api/pool/v1beta1"
	snapshotv1beta1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ImageTag is the tag of the images under test, as the Makefile builds them; VIRTKIT_IMAGE_TAG overrides it.
func ImageTag() string {
	if tag := os.Getenv("VIRTKIT_IMAGE_TAG"); tag != "" {
		return tag
	}
	return "dev"
}

// TinyDisk is the tiny guest's container disk.
func TinyDisk() string { return "ghcr.io/virtkit/tiny-disk:" + ImageTag() }

// Launcher is the launcher's image, which has busybox and qemu-img besides.
func Launcher() string { return "ghcr.io/virtkit/virt-launcher:" + ImageTag() }

// Instance is one virt-local with its clients.
type Instance struct {
	Name       string
	Root       string // the repository
	Kubeconfig string
	Config     *rest.Config
	Kube       kubernetes.Interface
	Client     client.WithWatch

	dir string // made by Start, removed by Down
}

// Start brings up a new instance named prefix-<random>, without virtkit on it. On an error it has already
// taken down what it had made. flags are more of virt-local up's.
func Start(ctx context.Context, prefix string, flags ...string) (*Instance, error) {
	root, err := repository()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "virtkit-"+prefix+"-")
	if err != nil {
		return nil, err
	}
	i := &Instance{
		Name: prefix + "-" + rand.String(5), Root: root,
		Kubeconfig: filepath.Join(dir, "kubeconfig"), dir: dir,
	}
	args := []string{"up", "--name", i.Name, "--nodes", "2", "--hints=false", "--kubeconfig", i.Kubeconfig}
	args = append(args, flags...)
	for _, image := range []string{"virt-server", "virt-launcher", "tiny-disk"} {
		args = append(args, "--image", filepath.Join(root, "bin", "images", image+".tar"))
	}
	if err := i.run(ctx, "virt-local", args...); err != nil {
		return nil, errors.Join(err, i.Down())
	}
	if err := i.connect(); err != nil {
		return nil, errors.Join(err, i.Down())
	}
	return i, nil
}

// Attach uses an instance that is up, by its context in $KUBECONFIG or ~/.kube/config. Down leaves it alone.
func Attach(name string) (*Instance, error) {
	root, err := repository()
	if err != nil {
		return nil, err
	}
	i := &Instance{Name: name, Root: root, Kubeconfig: clientcmd.RecommendedHomeFile}
	if k := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); k != "" {
		i.Kubeconfig = k
	}
	return i, i.connect()
}

// At is an instance wherever it runs, by its context in a kubeconfig. Only its API server can be reached; Down leaves
// it alone.
func At(name, kubeconfig string) (*Instance, error) {
	root, err := repository()
	if err != nil {
		return nil, err
	}
	i := &Instance{Name: name, Root: root, Kubeconfig: kubeconfig}
	return i, i.connect()
}

// Down ends an instance that Start made, and everything on it.
func (i *Instance) Down() error {
	if i.dir == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	if err := i.run(ctx, "virt-local", "down", "--name", i.Name); err != nil {
		return err
	}
	return os.RemoveAll(i.dir)
}

// Repair starts what has died of the instance, as `virt-local up` does when it is called again.
func (i *Instance) Repair(ctx context.Context) error {
	return i.run(ctx, "virt-local", "up", "--name", i.Name, "--hints=false", "--kubeconfig", i.Kubeconfig)
}

// Status is what of `virt-local status -o json` tests need.
type Status struct {
	StateDir   string `json:"stateDir"`
	Ready      bool   `json:"ready"`
	Components []struct {
		Name string `json:"name"` // control-plane, init, containerd, kubelet, kube-proxy
		Node string `json:"node"`
		PID  int    `json:"pid"` // 0 when it does not run
	} `json:"components"`
}

// PID is the process of a component, on a node or, as the control plane, on none; 0 when it does not run.
func (s Status) PID(component, node string) int {
	for _, c := range s.Components {
		if c.Name == component && c.Node == node {
			return c.PID
		}
	}
	return 0
}

// Status looks at the instance's processes.
func (i *Instance) Status(ctx context.Context) (s Status, err error) {
	// Its exit code says whether all is well, which is in the answer, too.
	out, err := exec.CommandContext(ctx, i.Bin("virt-local"), "status", "--name", i.Name, "-o", "json").Output()
	if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || len(out) == 0) {
		return s, fmt.Errorf("virt-local status: %w", err)
	}
	if err := json.Unmarshal(out, &s); err != nil {
		return s, fmt.Errorf("virt-local status: %w", err)
	}
	return s, nil
}

// Install puts virtkit on the instance and waits until it is available.
func (i *Instance) Install(ctx context.Context) error {
	return i.run(ctx, "virtctl", "--kubeconfig", i.Kubeconfig, "--context", i.Name, "install", "--wait",
		"--timeout", "3m")
}

// Node does something to a node as `virt-local node` does: stop, start, cut, heal.
func (i *Instance) Node(ctx context.Context, verb, node string) error {
	return i.run(ctx, "virt-local", "node", verb, node, "--name", i.Name)
}

// ControlPlane is the process of etcd, the API server, the controller manager and the scheduler.
func (i *Instance) ControlPlane() (pid int, err error) {
	text, err := os.ReadFile(filepath.Join("/var/lib/virt-local", i.Name, "run", "control-plane.pid"))
	if err != nil {
		return 0, err
	}
	var id struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal(text, &id); err != nil {
		return 0, fmt.Errorf("read the control plane's pid file: %w", err)
	}
	if id.PID <= 1 {
		return 0, fmt.Errorf("the control plane's pid file names process %d", id.PID)
	}
	return id.PID, nil
}

// Virtctl runs virtctl against the instance.
func (i *Instance) Virtctl(ctx context.Context, stdin io.Reader, args ...string) (stdout, stderr string, err error) {
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, i.Bin("virtctl"),
		append([]string{"--kubeconfig", i.Kubeconfig, "--context", i.Name}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, &out, &errOut
	err = cmd.Run()
	return out.String(), errOut.String(), err
}

// Bin is the path of one of the built programs.
func (i *Instance) Bin(name string) string { return filepath.Join(i.Root, "bin", name) }

// run shows the program's output on standard error: bringing an instance up takes its time.
func (i *Instance) run(ctx context.Context, program string, args ...string) error {
	cmd := exec.CommandContext(ctx, i.Bin(program), args...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", program, strings.Join(args, " "), err)
	}
	return nil
}

func (i *Instance) connect() error {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: i.Kubeconfig},
		&clientcmd.ConfigOverrides{CurrentContext: i.Name},
	).ClientConfig()
	if err != nil {
		return fmt.Errorf("load %s: %w", i.Kubeconfig, err)
	}
	config.QPS, config.Burst = 200, 400
	i.Config = config
	if i.Kube, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1.AddToScheme(scheme),
		instancetypev1beta1.AddToScheme(scheme),
		apiextensionsv1.AddToScheme(scheme), migrationsv1alpha1.AddToScheme(scheme), poolv1beta1.AddToScheme(scheme),
		cdiv1.AddToScheme(scheme), snapshotv1beta1.AddToScheme(scheme), clonev1beta1.AddToScheme(scheme),
		snapshotsv1.AddToScheme(scheme)); err != nil {
		return err
	}
	i.Client, err = client.NewWithWatch(config, client.Options{Scheme: scheme})
	return err
}

func repository() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/virtkit/virtkit/pkg/client/action/client"
	"github.com/virtkit/virtkit/pkg/version"
)

// Factory gives commands what they work with. Nothing is read or dialled before a command asks for it, so
// that help, completion and `version --client` cost nothing.
type Factory struct {
	// Program is how the user calls us, "virtctl" or "kubectl virt", for hints and examples.
	Program string
	IO      *IOStreams
	Flags   *ConnectionFlags
	// Now and RandomName are the clock, and the source of n random letters and digits.
	Now        func() time.Time
	RandomName func(n int) string
	Getenv     func(string) string

	changes  *changes
	warnings shownWarnings

	once    sync.Once
	client  *client.Client
	onceErr error
}

// NewFactory returns a Factory on the given streams, to which it writes through Printers.
func NewFactory(program string, io *IOStreams, getenv func(string) string) *Factory {
	return &Factory{
		Program:    program,
		IO:         io.printers(),
		Flags:      &ConnectionFlags{getenv: getenv},
		Now:        time.Now,
		RandomName: randomName,
		Getenv:     getenv,
		changes:    &changes{},
	}
}

// RESTConfig returns how to reach the cluster, from kubeconfig and flags. Each call returns a copy of its own.
func (f *Factory) RESTConfig() (*rest.Config, error) {
	c, err := f.Flags.Loader().ClientConfig()
	if err != nil {
		if timeout := f.Flags.Overrides.Timeout; timeout != "" &&
			strings.HasPrefix(err.Error(), "Invalid timeout value") {
			return nil, UsageErrorf("--request-timeout: %q is not a duration such as 30s or 2m", timeout)
		}
		return nil, kubeconfigError(err)
	}
	c.UserAgent = fmt.Sprintf("virtctl/%s (%s)", version.Get().GitVersion, version.Get().Platform)
	c.QPS = -1 // the server's fairness limits us, not our own guess
	c.WarningHandler = warnings(f.IO, &f.warnings)
	c.Wrap(func(next http.RoundTripper) http.RoundTripper { return noticing{next, f} })
	return c, nil
}

// Namespace returns the namespace to work in: --namespace, else the context's, else "default".
func (f *Factory) Namespace() (string, error) {
	ns, _, err := f.Flags.Loader().Namespace()
	return ns, kubeconfigError(err)
}

// NamespaceOf returns the namespace of an object that is to be sent: its own, or Namespace where it has none.
func (f *Factory) NamespaceOf(object metav1.Object) (string, error) {
	if ns := object.GetNamespace(); ns != "" {
		return ns, nil
	}
	return f.Namespace()
}

// kubeconfigError adds to an error about a bare path that the path is the kubeconfig's.
func kubeconfigError(err error) error {
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	return err
}

// Client returns the typed client of KubeVirt's resources and subresources.
func (f *Factory) Client() (*client.Client, error) {
	f.once.Do(func() {
		config, err := f.RESTConfig()
		if err != nil {
			f.onceErr = err
			return
		}
		f.client, f.onceErr = client.New(config)
	})
	return f.client, f.onceErr
}

// Scope returns the client, and the namespace to work in.
func (f *Factory) Scope() (*client.Client, string, error) {
	namespace, err := f.Namespace()
	if err != nil {
		return nil, "", err
	}
	c, err := f.Client()
	return c, namespace, err
}

// InContext returns a factory like f for another context of the kubeconfig.
func (f *Factory) InContext(name string) *Factory {
	flags := &ConnectionFlags{Kubeconfig: f.Flags.Kubeconfig, Overrides: f.Flags.Overrides, getenv: f.Flags.getenv}
	flags.Overrides.CurrentContext = name
	return &Factory{
		Program: f.Program, IO: f.IO, Flags: flags, Now: f.Now, RandomName: f.RandomName, Getenv: f.Getenv,
		changes: f.changes,
	}
}

// Silent returns a factory like f that prints nothing.
func (f *Factory) Silent() *Factory {
	return &Factory{
		Program: f.Program, IO: NoStreams(), Flags: f.Flags, Now: f.Now, RandomName: f.RandomName, Getenv: f.Getenv,
		changes: f.changes,
	}
}

// Connection describes the cluster in use, for messages. What cannot be read stays empty.
func (f *Factory) Connection() Connection {
	c := Connection{Program: f.Program, Now: f.Now()}
	loader := f.Flags.Loader()
	if raw, err := loader.RawConfig(); err == nil {
		c.Context = raw.CurrentContext
		if f.Flags.Overrides.CurrentContext != "" {
			c.Context = f.Flags.Overrides.CurrentContext
		}
	}
	if config, err := loader.ClientConfig(); err == nil {
		c.Server = config.Host
		c.CertNotAfter = certNotAfter(config)
	}
	return c
}

// Machine returns the client, and the machine that an argument names: NAME, vm/NAME or vmi/NAME.
func (f *Factory) Machine(arg string) (*client.Client, Target, error) {
	target, err := f.Target(arg)
	if err != nil {
		return nil, target, err
	}
	c, err := f.Client()
	return c, target, err
}

// Target returns the machine alone; no cluster is needed.
func (f *Factory) Target(arg string) (Target, error) {
	namespace, err := f.Namespace()
	if err != nil {
		return Target{}, err
	}
	return ParseTarget(arg, namespace)
}

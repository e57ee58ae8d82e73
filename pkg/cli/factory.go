package cli

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/virtkit/virtkit/pkg/action/client"
	"github.com/virtkit/virtkit/pkg/version"
)

// Factory gives commands what they work with. Nothing is read or dialled before a command asks for it, so
// that help, completion and `version --client` cost nothing.
type Factory struct {
	// Program is how the user calls us, "virtctl" or "kubectl virt", for hints and examples.
	Program string
	IO      *IOStreams
	// Flags are kubectl's connection flags. They are also a genericclioptions.RESTClientGetter, from which
	// cli-runtime's resource.Builder, discovery and REST mapper are made.
	Flags *genericclioptions.ConfigFlags
	// Now and RandomName are the clock, and the source of n random letters and digits.
	Now        func() time.Time
	RandomName func(n int) string
	Getenv     func(string) string

	once    sync.Once
	client  *client.Client
	onceErr error
}

// NewFactory returns a Factory on the given streams.
func NewFactory(program string, io *IOStreams, getenv func(string) string) *Factory {
	f := &Factory{
		Program:    program,
		IO:         io,
		Flags:      genericclioptions.NewConfigFlags(true),
		Now:        time.Now,
		RandomName: randomName,
		Getenv:     getenv,
	}
	f.Flags.WrapConfigFn = func(c *rest.Config) *rest.Config {
		c.UserAgent = fmt.Sprintf("virtctl/%s (%s)", version.Get().GitVersion, version.Get().Platform)
		c.QPS = -1 // the server's fairness limits us, not our own guess
		c.WarningHandler = rest.NewWarningWriter(io.ErrOut, rest.WarningWriterOptions{Deduplicate: true, Color: io.ColourErr()})
		return c
	}
	return f
}

// RESTConfig is how to reach the cluster, from kubeconfig and flags. Where neither names one it is an error
// rather than kubectl's guess of localhost:8080.
func (f *Factory) RESTConfig() (*rest.Config, error) {
	raw, err := f.Flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return nil, err
	}
	named := len(raw.Clusters) > 0 || *f.Flags.APIServer != "" ||
		f.Getenv("KUBERNETES_MASTER") != "" || f.Getenv("KUBERNETES_SERVICE_HOST") != ""
	if !named {
		return nil, clientcmd.ErrEmptyConfig
	}
	return f.Flags.ToRESTConfig()
}

// Namespace is the namespace to work in: --namespace, else the context's, else "default".
func (f *Factory) Namespace() (string, error) {
	ns, _, err := f.Flags.ToRawKubeConfigLoader().Namespace()
	return ns, err
}

// Client is the typed client of KubeVirt's resources and subresources.
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

// Connection describes the cluster in use, for messages. What cannot be read stays empty.
func (f *Factory) Connection() Connection {
	c := Connection{Program: f.Program, Now: f.Now()}
	loader := f.Flags.ToRawKubeConfigLoader()
	if raw, err := loader.RawConfig(); err == nil {
		c.Context = raw.CurrentContext
		if f.Flags.Context != nil && *f.Flags.Context != "" {
			c.Context = *f.Flags.Context
		}
	}
	if config, err := loader.ClientConfig(); err == nil {
		c.Server = config.Host
		c.CertNotAfter = certNotAfter(config)
	}
	return c
}

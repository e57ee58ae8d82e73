package cli

import (
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
)

// ConnectionFlags are kubectl's flags that choose the cluster, the user and the namespace. They are bound by
// client-go itself rather than by cli-runtime's ConfigFlags, whose imports (discovery, kustomize, every typed API
// group) double the time and memory of a start.
type ConnectionFlags struct {
	// Kubeconfig is the path given with --kubeconfig.
	Kubeconfig string
	// Overrides are what the other flags say.
	Overrides clientcmd.ConfigOverrides

	getenv func(string) string
	loaded clientcmd.ClientConfig
}

// AddFlags registers the flags.
func (c *ConnectionFlags) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&c.Kubeconfig, "kubeconfig", "",
		"Path to the kubeconfig `FILE`; else $KUBECONFIG, else ~/.kube/config")
	names := clientcmd.RecommendedConfigOverrideFlags("")
	names.ContextOverrideFlags.Namespace.ShortName = "n"
	names.ClusterOverrideFlags.APIServer.ShortName = "s"
	clientcmd.BindOverrideFlags(&c.Overrides, flags, names)
}

// Loader reads the kubeconfig on first use, and keeps it.
func (c *ConnectionFlags) Loader() clientcmd.ClientConfig {
	if c.loaded == nil {
		rules := clientcmd.NewDefaultClientConfigLoadingRules()
		rules.ExplicitPath = c.Kubeconfig
		if master := c.getenv("KUBERNETES_MASTER"); master != "" {
			c.Overrides.ClusterDefaults.Server = master
		}
		c.loaded = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &c.Overrides)
	}
	return c.loaded
}

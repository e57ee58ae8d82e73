package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/tools/cache"
	cliflag "k8s.io/component-base/cli/flag"
	apiserverapp "k8s.io/kubernetes/cmd/kube-apiserver/app"
	apiserveroptions "k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	controllersapp "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	controllersoptions "k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	schedulerapp "k8s.io/kubernetes/cmd/kube-scheduler/app"
	scheduleroptions "k8s.io/kubernetes/cmd/kube-scheduler/app/options"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/component"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/kubeconfig"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/pki"
)

// The commands of Kubernetes' components each install a signal handler, which panics the second time in
// one process. So they are driven as their commands do it, by options and Run, with flags as text because
// flags are what is documented and stable.

// parse parses flags into the options behind the flag sets.
func parse(sets *cliflag.NamedFlagSets, args []string) error {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	for _, set := range sets.FlagSets {
		fs.AddFlagSet(set)
	}
	return fs.Parse(args)
}

func apiServer(
	cfg Config, listener net.Listener, admin kubeconfig.Credentials, failed func(error),
) component.Component {
	return &component.Task{
		Label:  "kube-apiserver",
		Failed: failed,
		Check:  HealthCheck(admin, "/readyz"),
		Run: func(ctx context.Context) error {
			options := apiserveroptions.NewServerRunOptions()
			sets := options.Flags()
			if err := parse(&sets, apiServerArgs(cfg, listener.Addr().(*net.TCPAddr))); err != nil {
				return err
			}
			options.SecureServing.Listener = listener
			if err := options.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
				return err
			}
			completed, err := options.Complete(ctx)
			if err != nil {
				return err
			}
			if errs := completed.Validate(); len(errs) > 0 {
				return utilerrors.NewAggregate(errs)
			}
			return apiserverapp.Run(ctx, completed)
		},
	}
}

func apiServerArgs(cfg Config, address *net.TCPAddr) []string {
	keys := pki.Dir{Path: "pki"}
	args := []string{
		"--etcd-servers=" + etcdSocket,
		"--bind-address=" + address.IP.String(),
		fmt.Sprintf("--secure-port=%d", address.Port),
		"--advertise-address=" + address.IP.String(),
		"--client-ca-file=" + keys.Crt(pki.CA),
		"--tls-cert-file=" + keys.Crt(pki.APIServer), "--tls-private-key-file=" + keys.Key(pki.APIServer),
		"--kubelet-certificate-authority=" + keys.Crt(pki.CA),
		"--kubelet-client-certificate=" + keys.Crt(pki.KubeletClient), "--kubelet-client-key=" +
			keys.Key(pki.KubeletClient),
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=pki/" + pki.ServiceAccount + ".pub",
		"--service-account-signing-key-file=" + keys.Key(pki.ServiceAccount),
		"--requestheader-client-ca-file=" + keys.Crt(pki.FrontProxyCA),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + keys.Crt(pki.FrontProxy), "--proxy-client-key-file=" + keys.Key(pki.FrontProxy),
		// The API server is not on the pod network's service proxy: it calls webhooks and aggregated API
		// servers at their pods.
		"--enable-aggregator-routing=true",
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--admission-control-config-file=" + admissionFile,
		"--allow-privileged=true",
		"--service-cluster-ip-range=" + cfg.ServiceNet,
		"--audit-policy-file=audit-policy.yaml", "--audit-log-path=audit.log",
		"--audit-log-maxsize=100", "--audit-log-maxbackup=2",
		"--profiling=false",
		// With this the server waits 2 s, not 60, for clients that keep their connections when it shuts down.
		"--shutdown-send-retry-after=true",
	}
	if cfg.loopback() {
		// Endpoints may not be on loopback.
		args = append(args, "--endpoint-reconciler-type=none")
	}
	if cfg.Controllers == "" {
		// Nobody makes service accounts, which pods would need.
		args = append(args, "--disable-admission-plugins=ServiceAccount")
	}
	return args
}

func controllerManager(cfg Config, admin kubeconfig.Credentials, failed func(error)) component.Component {
	keys := pki.Dir{Path: "pki"}
	args := []string{
		"--kubeconfig=pki/" + pki.Controllers + ".kubeconfig",
		"--leader-elect=false", "--secure-port=0",
		"--controllers=" + cfg.Controllers,
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + keys.Key(pki.ServiceAccount), "--root-ca-file=" + keys.Crt(pki.CA),
		"--cluster-signing-cert-file=" + keys.Crt(pki.CA), "--cluster-signing-key-file=" + keys.Key(pki.CA),
		"--kube-api-qps=200", "--kube-api-burst=400",
		"--profiling=false",
	}
	if cfg.NodeMonitorGrace > 0 {
		period := max(cfg.NodeMonitorGrace/8, time.Second)
		args = append(args, "--node-monitor-grace-period="+cfg.NodeMonitorGrace.String(), "--node-monitor-period="+
			period.String())
	}
	return &component.Task{
		Label:  "kube-controller-manager",
		Failed: failed,
		Check:  HealthCheck(admin, "/api/v1/namespaces/default/serviceaccounts/default"),
		Run: func(ctx context.Context) error {
			options, err := controllersoptions.NewKubeControllerManagerOptions()
			if err != nil {
				return err
			}
			known, disabled, aliases := controllersapp.KnownControllers(),
				controllersapp.ControllersDisabledByDefault(), controllersapp.ControllerAliases()
			sets := options.Flags(known, disabled, aliases)
			options.ParsedFlags = &sets
			if err := parse(&sets, args); err != nil {
				return err
			}
			config, err := options.Config(ctx, known, disabled, aliases)
			if err != nil {
				return err
			}
			return controllersapp.Run(ctx, config.Complete())
		},
	}
}

func scheduler(failed func(error)) component.Component {
	args := []string{
		"--kubeconfig=pki/" + pki.Scheduler + ".kubeconfig", "--leader-elect=false", "--secure-port=0",
		"--profiling=false",
	}
	return &component.Task{
		Label:  "kube-scheduler",
		Failed: failed,
		Run: func(ctx context.Context) error {
			options := scheduleroptions.NewOptions()
			if err := parse(options.Flags, args); err != nil {
				return err
			}
			name, err := cache.NewInformerName("kube-scheduler")
			if err != nil {
				return err
			}
			options.InformerName = name
			config, sched, err := schedulerapp.Setup(ctx, options)
			if err != nil {
				return err
			}
			return schedulerapp.Run(ctx, config, sched)
		},
	}
}

// AnswerTime bounds one question of many that whether something is ready. On a machine that is merely slow an answer
// takes seconds; one that nobody gives is noticed sooner by other means.
const AnswerTime = 15 * time.Second

// HealthCheck returns a check that wants 200 from a path of the API server.
func HealthCheck(admin kubeconfig.Credentials, path string) func(context.Context) error {
	client, err := Client(admin)
	if err != nil {
		return func(context.Context) error { return component.Permanent(err) }
	}
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, AnswerTime)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, admin.Server+path, nil)
		if err != nil {
			return component.Permanent(err)
		}
		res, err := client.Do(req)
		if err != nil {
			return err
		}
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("GET %s: %s", path, res.Status)
		}
		return nil
	}
}

// Client returns a plain HTTP client with the credentials.
func Client(c kubeconfig.Credentials) (*http.Client, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(c.CA) {
		return nil, errors.New("the cluster's CA has no certificate")
	}
	pair, err := tls.X509KeyPair(c.Certificate, c.CertificateKey)
	if err != nil {
		return nil, fmt.Errorf("read credentials: %w", err)
	}
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{
			RootCAs: pool, Certificates: []tls.Certificate{pair},
			MinVersion: tls.VersionTLS12,
		},
	}}, nil
}

// Package node runs one node: what its init process (PID 1 of the node's own PID, mount, UTS, IPC and network
// namespaces) does inside, and the configuration files of containerd, kubelet, kube-proxy and CNI.
//
//	virt-local node      PID 1: mounts, then starts the three and again whenever one ends; reaps orphans
//	 ├─ containerd       sockets and state in the node's own /run, images in its own /var
//	 ├─ kubelet
//	 ├─ kube-proxy       nftables mode
//	 └─ shims and containers
//
// Killing PID 1 makes the kernel kill everything in the node at once, with its mounts and network: a power cut.
package node

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	componentbaseconfig "k8s.io/component-base/config/v1alpha1"
	proxyconfig "k8s.io/kube-proxy/config/v1alpha1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/instance"
	"github.com/virtkit/virtkit/cmd/virt-local/internal/payload"
)

// Tools are programs of the machine that a node uses, by path.
type Tools struct {
	Runc string
	// CNI is the directory of the CNI plugins.
	CNI string
}

// PauseImage is the image of the process that holds a pod's namespaces. Package images makes it.
const PauseImage = "virt-local/pause:1"

// ContainerdSocket is containerd's socket inside the node.
const ContainerdSocket = "/run/containerd/containerd.sock"

// proxyHealthPort serves kube-proxy's /healthz.
const proxyHealthPort = 10256

// Files returns the configuration files of a node, by their name below nodes/<node>/etc.
func Files(n instance.Node, tools Tools, pki string, resolvConf []byte) (map[string][]byte, error) {
	kubelet, err := yaml.Marshal(kubeletConfig(n, pki))
	if err != nil {
		return nil, fmt.Errorf("write kubelet configuration: %w", err)
	}
	proxy, err := yaml.Marshal(proxyConfig(n, pki))
	if err != nil {
		return nil, fmt.Errorf("write kube-proxy configuration: %w", err)
	}
	cni, err := cniConfig(n, pki)
	if err != nil {
		return nil, fmt.Errorf("write CNI configuration: %w", err)
	}
	return map[string][]byte{
		"containerd.toml":              []byte(containerdConfig(n, tools)),
		"kubelet.yaml":                 kubelet,
		"kube-proxy.yaml":              proxy,
		"net.d/10-virt-local.conflist": cni,
		"resolv.conf":                  resolvConf,
	}, nil
}

func containerdConfig(n instance.Node, tools Tools) string {
	// oom_score and restrict_oom_score_adj: without CAP_SYS_RESOURCE no process may be put below its parent.
	return fmt.Sprintf(`version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
oom_score = 0
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.erofs", "io.containerd.snapshotter.v1.blockfile", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing"]

[grpc]
  address = %q

[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "docker.io/%s"

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = [%s]
    conf_dir = %q
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
        BinaryName = %q
        SystemdCgroup = false
`, ContainerdSocket, PauseImage, pluginDirs(n, tools), n.Dir("etc", "net.d"), tools.Runc)
}

// pluginDirs returns the directories of CNI plugins, as containerd's configuration lists them.
func pluginDirs(n instance.Node, tools Tools) string {
	if n.Multus || n.Has(instance.V6) {
		return fmt.Sprintf("%q, %q", tools.CNI, n.Path("bin"))
	}
	return fmt.Sprintf("%q", tools.CNI)
}

func kubeletConfig(n instance.Node, pki string) *kubeletconfig.KubeletConfiguration {
	name := n.NodeName()
	no, yes := false, true
	config := &kubeletconfig.KubeletConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: "kubelet.config.k8s.io/v1beta1", Kind: "KubeletConfiguration"},
		Authentication: kubeletconfig.KubeletAuthentication{
			Anonymous: kubeletconfig.KubeletAnonymousAuthentication{Enabled: &no},
			Webhook:   kubeletconfig.KubeletWebhookAuthentication{Enabled: &yes},
			X509:      kubeletconfig.KubeletX509Authentication{ClientCAFile: pki + "/ca.crt"},
		},
		Authorization:     kubeletconfig.KubeletAuthorization{Mode: kubeletconfig.KubeletAuthorizationModeWebhook},
		TLSCertFile:       pki + "/" + name + "-server.crt",
		TLSPrivateKeyFile: pki + "/" + name + "-server.key",
		Address:           n.IPs()[0].String(),

		ContainerRuntimeEndpoint: "unix://" + ContainerdSocket,
		CgroupDriver:             "cgroupfs",
		CgroupRoot:               n.NodeCgroup(),
		EnforceNodeAllocatable:   []string{"pods"},
		FailCgroupV1:             &no,
		FailSwapOn:               &no,
		OOMScoreAdj:              new(int32),
		MakeIPTablesUtilChains:   &no,

		ClusterDNS:     instance.Texts(n.DNSIPs()),
		ClusterDomain:  "cluster.local",
		ResolverConfig: new(n.Dir("etc", "resolv.conf")),

		VolumePluginDir:     "/var/lib/kubelet/volume-plugins",
		MaxPods:             220,
		SerializeImagePulls: &no,
		RegistryPullQPS:     new(int32),
		KubeAPIQPS:          new(int32(100)),
		KubeAPIBurst:        200,
		// The machine's disk is not the node's: only a nearly full one evicts pods, and images, which cannot be
		// pulled again when they came from files, are never collected.
		EvictionHard: map[string]string{
			"memory.available": "100Mi", "nodefs.available": "1%",
			"imagefs.available": "1%", "nodefs.inodesFree": "1%",
		},
		ImageGCHighThresholdPercent: new(int32(100)),
		NodeStatusUpdateFrequency:   metav1.Duration{Duration: 10 * time.Second},
	}
	if n.NodeMonitorGrace > 0 {
		// Kubelets renew their lease every quarter of its duration, which must fit into the grace several times.
		config.NodeLeaseDurationSeconds = max(1, int32(n.NodeMonitorGrace.Seconds()/2))
	}
	return config
}

func proxyConfig(n instance.Node, pki string) *proxyconfig.KubeProxyConfiguration {
	zero := int32(0)
	everywhere := netip.IPv4Unspecified()
	if !n.Has(instance.V4) {
		everywhere = netip.IPv6Unspecified()
	}
	return &proxyconfig.KubeProxyConfiguration{
		TypeMeta: metav1.TypeMeta{
			APIVersion: "kubeproxy.config.k8s.io/v1alpha1",
			Kind:       "KubeProxyConfiguration",
		},
		ClientConnection: componentbaseconfig.ClientConnectionConfiguration{Kubeconfig: pki +
			"/kube-proxy.kubeconfig", QPS: 50, Burst: 100},
		Mode:               "nftables",
		ClusterCIDR:        instance.List(n.PodNets()),
		HostnameOverride:   n.NodeName(),
		BindAddress:        everywhere.String(),
		HealthzBindAddress: netip.AddrPortFrom(everywhere, proxyHealthPort).String(),
		MetricsBindAddress: "127.0.0.1:10249",
		// Connection tracking is sized for the whole machine and not changeable from a network namespace.
		Conntrack: proxyconfig.KubeProxyConntrackConfiguration{
			MaxPerCore: &zero, Min: &zero,
			TCPEstablishedTimeout: &metav1.Duration{}, TCPCloseWaitTimeout: &metav1.Duration{},
		},
	}
}

// cniConfig uses ptp, not bridge: pods of one node then talk through the node's routing, so Services work
// between them without br_netfilter.
//
// With Multus it is what Multus delegates a pod's first link to.
func cniConfig(n instance.Node, pki string) ([]byte, error) {
	type object = map[string]any
	var plugins, routes []object
	var ranges [][]object
	for _, network := range n.NodePodNets() {
		ranges = append(ranges, []object{{"subnet": network.String()}})
		everything := "0.0.0.0/0"
		if network.Addr().Is6() {
			everything = "::/0"
		}
		routes = append(routes, object{"dst": everything})
	}
	if n.Has(instance.V6) {
		plugins = append(plugins, object{"type": payload.NoDAD})
	}
	plugins = append(plugins, object{
		"type": "ptp", "ipMasq": false,
		"ipam": object{"type": "host-local", "dataDir": "/run/cni-ipam", "ranges": ranges, "routes": routes},
	}, object{"type": "portmap", "capabilities": object{"portMappings": true}})
	config := object{"cniVersion": "1.0.0", "name": "virt-local", "plugins": plugins}
	if n.Multus {
		config = object{
			"cniVersion": "1.0.0",
			"name":       "multus",
			"plugins": []object{{
				"type":         "multus",
				"kubeconfig":   pki + "/multus.kubeconfig",
				"cniDir":       "/run/cni-multus",
				"capabilities": object{"portMappings": true},
				"delegates":    []object{config},
			}},
		}
	}
	b, err := json.MarshalIndent(config, "", "  ")
	return append(b, '\n'), err
}

// ResolvConf makes the resolv.conf of nodes, which pods get with dnsPolicy Default, from the machine's.
// Name servers on loopback (systemd-resolved's) or at link-local addresses are not there for a node, nor are those of a
// family that nodes have not: cluster DNS, which asks the machine's own resolver, takes their place.
func ResolvConf(machine []byte, dns []netip.Addr) []byte {
	var out strings.Builder
	servers := 0
	reachable := func(server string) bool {
		ip, err := netip.ParseAddr(server)
		return err == nil && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() &&
			slices.ContainsFunc(dns, func(ours netip.Addr) bool { return ours.Is4() == ip.Is4() })
	}
	for line := range strings.Lines(string(machine)) {
		fields := strings.Fields(line)
		switch {
		case len(fields) < 2 || strings.HasPrefix(fields[0], "#"):
			continue
		case fields[0] == "nameserver":
			if !reachable(fields[1]) {
				continue
			}
			servers++
		case fields[0] != "search" && fields[0] != "options":
			continue
		}
		out.WriteString(strings.Join(fields, " ") + "\n")
	}
	if servers == 0 {
		for _, ip := range dns {
			out.WriteString("nameserver " + ip.String() + "\n")
		}
	}
	return []byte(out.String())
}

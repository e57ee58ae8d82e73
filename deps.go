//go:build never

// Package virtkit: this file only keeps `go mod tidy` from dropping modules that
// packages under construction are about to import. It goes away with the last of them.
package virtkit

import (
	_ "charm.land/bubbles/v2/table"
	_ "charm.land/bubbletea/v2"
	_ "charm.land/lipgloss/v2"
	_ "github.com/fsnotify/fsnotify"
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/google/go-containerregistry/pkg/v1/mutate"
	_ "github.com/google/go-containerregistry/pkg/v1/tarball"
	_ "github.com/google/nftables"
	_ "github.com/gorilla/websocket"
	_ "github.com/insomniacslk/dhcp/dhcpv4/server4"
	_ "github.com/kdomanski/iso9660"
	_ "github.com/rogpeppe/go-internal/testscript"
	_ "github.com/spf13/cobra"
	_ "github.com/vishvananda/netlink"
	_ "github.com/vishvananda/netns"
	_ "go.uber.org/goleak"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/term"
	_ "google.golang.org/grpc"
	_ "google.golang.org/protobuf/proto"
	_ "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	_ "k8s.io/apiserver/pkg/server"
	_ "k8s.io/apiserver/pkg/server/options"
	_ "k8s.io/cli-runtime/pkg/genericclioptions"
	_ "k8s.io/client-go/kubernetes"
	_ "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	_ "k8s.io/kubectl/pkg/cmd/util"
	_ "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	_ "k8s.io/pod-security-admission/policy"
	_ "kubevirt.io/api/core/v1"
	_ "libvirt.org/go/libvirt"
	_ "libvirt.org/go/libvirtxml"
	_ "sigs.k8s.io/controller-runtime"
	_ "sigs.k8s.io/yaml"
)

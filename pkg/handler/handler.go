// Package handler is virt-handler, which runs once on every node and is responsible for all of the node's guests: it
// prepares their pods from outside (network, devices, capability cache), has their launchers start them, writes the
// status of their VirtualMachineInstances from then on, and serves their consoles to virt-api. It also reports that the
// node is alive and whether it has KVM.
//
// It holds no state that a restart would lose: launchers go on without it, and the next virt-handler
// attaches to them again. Inputs: the VMIs labelled with this node's name, the node's launcher pods, and
// the launchers' sockets. Outputs: VMI status, events, the node's labels and heartbeat.
//
//	Reconciler      one pass over one VMI: look, decide (Next, and vmistatus for the status), apply
//	session         one launcher: connect, prepare, start, watch
//	podfs           reaching into a pod that is not trusted
//	capabilities    the node's cache of QEMU's capabilities, and the probe that fills it
//	migrationproxy  the connections between the launchers of two nodes while a guest moves
//	streams         consoles and requests, over mutual TLS
//	nodestatus      labels and heartbeat; deviceplugin: /dev/kvm for pods
package handler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/virtkit/virtkit/pkg/handler/capabilities"
	"github.com/virtkit/virtkit/pkg/handler/podfs"
	"github.com/virtkit/virtkit/pkg/handler/records"
	"github.com/virtkit/virtkit/pkg/vm/network"
)

// Node holds what virt-handler knows of the node it runs on.
type Node struct {
	Name string
	// PodsDir is the kubelet's pod directory, ProcDir procfs of the host's PID namespace.
	PodsDir, ProcDir string
	Capabilities     *capabilities.Cache
	// Prober fills Capabilities; nil does not.
	Prober *capabilities.Prober
	Log    *slog.Logger
	Now    func() time.Time
	// Address is the address at which other nodes' virt-handlers reach this one, at MigrationPort. Dial connects to
	// theirs, and fails unless the one that answers is the node's.
	Address       string
	MigrationPort int
	Dial          func(ctx context.Context, node, address string) (net.Conn, error)
	// Plugins are the installation's network binding plugins; nil means none.
	Plugins func() network.Plugins
	// MaySpoof asks whether a namespace has the label network.AllowSpoofing; nil means that none has.
	MaySpoof func(ctx context.Context, namespace string) (bool, error)
	// Rights says which devices launchers may use.
	Rights *podfs.Rights

	plans    records.Store[network.Plan]
	renewals renewals
	steps    steps
	// stepLimit and endLimit bound a step and the end of a session; tests have less time.
	stepLimit, endLimit time.Duration
	// harvested is the directory in which virt-handler once kept caches that it had taken from launchers.
	harvested string
}

// NewNode describes a node; what virt-handler keeps lies below stateDir.
func NewNode(name, podsDir, procDir, stateDir string, log *slog.Logger) *Node {
	return &Node{
		Name: name, PodsDir: podsDir, ProcDir: procDir, Log: log, Now: time.Now,
		Capabilities: &capabilities.Cache{Dir: filepath.Join(stateDir, "probed"), Boot: bootID(procDir, log)},
		harvested:    filepath.Join(stateDir, "capabilities"),
		Rights:       &podfs.Rights{Proc: procDir, Pods: podsDir, Dir: filepath.Join(stateDir, "devices")},
		plans:        records.Store[network.Plan]{Dir: filepath.Join(stateDir, "network"), What: "network plan"},
		stepLimit:    stepLimit, endLimit: endLimit,
	}
}

// bootID returns the kernel's name for this boot of the node, or "" when it cannot be read.
func bootID(procDir string, log *slog.Logger) string {
	id, err := os.ReadFile(filepath.Join(procDir, "sys/kernel/random/boot_id"))
	if err != nil {
		log.Warn("the node's boot is not known; capability caches of earlier ones stay", "err", err)
		return ""
	}
	return filepath.Base("/" + strings.TrimSpace(string(id)))
}

// forgetHarvested removes what earlier versions took from launchers, of which any may have been a guest's.
func (n *Node) forgetHarvested() error {
	if err := os.RemoveAll(n.harvested); err != nil {
		return fmt.Errorf("remove capability caches that came from launchers: %w", err)
	}
	return nil
}

// forgetOldPods removes what was kept for pods that ended while virt-handler did not run.
func (n *Node) forgetOldPods() error {
	exists := func(pod types.UID) bool {
		_, err := os.Lstat(filepath.Join(n.PodsDir, string(pod)))
		return err == nil
	}
	return errors.Join(n.plans.KeepOnly(exists), n.Rights.KeepOnly(exists))
}

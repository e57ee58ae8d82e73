package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/virtkit/virtkit/pkg/client/action/firewall"
	"github.com/virtkit/virtkit/pkg/vm/network"
	"github.com/virtkit/virtkit/pkg/vm/network/multipolicy"
	"github.com/virtkit/virtkit/pkg/vm/network/reach"
	"github.com/virtkit/virtkit/tests/bench/report"
	"github.com/virtkit/virtkit/tests/instance"
)

const (
	// ruleCount is how many rules a connection is compared with before the one that lets it pass.
	ruleCount = 100
	// ruleCost is what they may cost, as a part of the throughput and of a request.
	ruleCost = .05
)

// onLAN defines a network on the bridge of all nodes, whose addresses each node gives by itself from one on.
func onLAN(name, from string) string {
	return `{"cniVersion":"1.0.0","name":"` + name + `","type":"bridge","bridge":"lan1","ipam":{"type":"host-local",` +
		`"dataDir":"/run/cni-bench","ranges":[[{"subnet":"203.0.113.0/24","rangeStart":"` + from + `"}]]}}`
}

// policies compares a guest on a network of Multus behind a MultiNetworkPolicy of many rules with the same guest
// without, in turns. It has a cluster of its own, since Multus takes part in the start of every pod.
func policies(ctx context.Context, b *bench) (rows []Row, err error) {
	i, err := instance.Start(ctx, "bench", "--multus")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, i.Down()) }()
	if err := i.Install(ctx); err != nil {
		return nil, err
	}
	p := &policed{bench: &bench{Instance: i, rounds: b.rounds, verbose: b.verbose}}
	if err := p.warmUp(ctx); err != nil {
		return nil, err
	}
	return p.measure(ctx)
}

// policed is the guest that is measured.
type policed struct {
	*bench
	vmi *v1.VirtualMachineInstance
}

func (p *policed) measure(ctx context.Context) (rows []Row, err error) {
	for name, from := range map[string]string{"red": "203.0.113.10", "asks": "203.0.113.100"} {
		if err := p.Client.Create(ctx, p.object("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition", name,
			map[string]any{"config": onLAN(name, from)})); err != nil {
			return nil, err
		}
	}
	p.vmi = p.bench.vmi("policed")
	withInit(p.vmi, served)
	spec := &p.vmi.Spec
	spec.Volumes[len(spec.Volumes)-1].CloudInitNoCloud.NetworkData = "version: 2\nethernets:\n" +
		"  eth0: {dhcp4: true}\n  eth1: {dhcp4: true}\n"
	spec.Networks = append(spec.Networks, v1.Network{
		Name: "red", NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: "red"}},
	})
	spec.Domain.Devices.Interfaces = append(spec.Domain.Devices.Interfaces, v1.Interface{
		Name: "red", InterfaceBindingMethod: v1.InterfaceBindingMethod{Bridge: &v1.InterfaceBridge{}},
	})
	gone, err := p.booted(ctx, p.vmi)
	defer func() { err = errors.Join(err, gone()) }()
	if err != nil {
		return nil, err
	}
	pod := p.pod("asks")
	pod.Annotations = map[string]string{network.AnnotationNetworks: "asks"}
	if _, err := p.untilRunning(ctx, pod); err != nil {
		return nil, err
	}
	defer func() {
		_, gone := p.untilGone(ctx, pod)
		err = errors.Join(err, gone)
	}()
	if err := p.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
		return nil, err
	}
	ns, err := podNamespace(pod)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	address, err := p.address(ctx)
	if err != nil {
		return nil, err
	}
	within := patience
	open := func() (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		return reach.In(ctx, ns, reach.TCP, netip.AddrPortFrom(address, 80))
	}
	// The guest's status may have its address before the guest has.
	within = settled
	for start := time.Now(); ; {
		conn, err := open()
		if err == nil {
			err = conn.Close()
		}
		if err == nil {
			break
		}
		if time.Since(start) > patience {
			return nil, fmt.Errorf("the guest at %s: %w", address, err)
		}
		if err := pause(ctx, settled); err != nil {
			return nil, err
		}
	}
	within = patience
	var carried, asked [2][]time.Duration // without the policy and with it
	for n := range p.rounds + 1 {
		for held := range carried {
			if err := p.hold(ctx, held == 1); err != nil {
				return nil, err
			}
			whole, err := fetch(open)
			if err != nil {
				return nil, err
			}
			answered, err := requests(open)
			if err != nil {
				return nil, err
			}
			if n > 0 { // the first is warm-up
				carried[held], asked[held] = append(carried[held], whole), append(asked[held], answered)
			}
		}
	}
	if err := p.hold(ctx, false); err != nil {
		return nil, err
	}
	const without = "without policies"
	flow := Row{
		Name: "policies-throughput", Unit: "MiB/s", Versus: without,
		What: fmt.Sprintf("%d MiB from a guest behind %d rules, median", forwardSize, ruleCount),
	}
	flow.Value, flow.Samples = rates(carried[1])
	flow.Anchor, flow.AnchorSamples = rates(carried[0])
	flow.Ratio = flow.Value / flow.Anchor
	return []Row{
		flow.AtLeast(1 - ruleCost),
		report.Timed("policies-request", "… a request over a new connection, median", "ms", asked[1], .5).
			Beside(without, asked[0], .5).Times(1 + ruleCost),
	}, nil
}

func (p *policed) object(version, kind, name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": version, "kind": kind,
		"metadata": map[string]any{"namespace": p.namespace, "name": name}, "spec": spec,
	}}
}

// address waits for the guest's address on network red.
func (p *policed) address(ctx context.Context) (netip.Addr, error) {
	for {
		vmi := &v1.VirtualMachineInstance{}
		if err := p.Client.Get(ctx, client.ObjectKeyFromObject(p.vmi), vmi); err != nil {
			return netip.Addr{}, err
		}
		for _, s := range vmi.Status.Interfaces {
			if s.Name == "red" && s.IP != "" {
				return netip.ParseAddr(s.IP)
			}
		}
		if err := pause(ctx, settled); err != nil {
			return netip.Addr{}, err
		}
	}
}

// hold makes the policy or deletes it, and waits until it holds or does not.
func (p *policed) hold(ctx context.Context, hold bool) error {
	policy := p.object(multipolicy.Version.String(), multipolicy.Kind, "rules", nil)
	policy.SetAnnotations(map[string]string{multipolicy.AnnotationFor: "red"})
	var err error
	if hold {
		var rules []any
		block := func(cidr string) any {
			return map[string]any{
				"from":  []any{map[string]any{"ipBlock": map[string]any{"cidr": cidr}}},
				"ports": []any{map[string]any{"port": int64(80)}},
			}
		}
		for i := range ruleCount - 1 {
			rules = append(rules, block(fmt.Sprintf("198.51.100.%d/32", i)))
		}
		policy.Object["spec"] = map[string]any{
			"podSelector": map[string]any{}, "ingress": append(rules, block("203.0.113.0/24")),
		}
		err = client.IgnoreAlreadyExists(p.Client.Create(ctx, policy))
	} else {
		err = client.IgnoreNotFound(p.Client.Delete(ctx, policy))
	}
	if err != nil {
		return err
	}
	for {
		var shown firewall.Report
		out, stderr, err := p.Virtctl(ctx, nil, "-n", p.namespace, "firewall", "show", "vmi/"+p.vmi.Name, "-o", "json")
		if err != nil {
			return fmt.Errorf("virtctl firewall show: %w: %s", err, stderr)
		}
		if err := json.Unmarshal([]byte(out), &shown); err != nil {
			return err
		}
		for _, nic := range shown.Interfaces {
			if nic.Name == "red" && (len(nic.Policies) > 0) == hold {
				return nil
			}
		}
		if err := pause(ctx, settled/4); err != nil {
			return err
		}
	}
}

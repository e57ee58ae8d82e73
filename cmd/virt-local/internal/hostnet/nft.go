package hostnet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/virtkit/virtkit/cmd/virt-local/internal/instance"
)

// tableName returns the name of the instance's nftables tables, of family ip and ip6.
func tableName(in *instance.Instance) string { return in.Slot.Bridge() }

// nftFamily returns nftables' name of a family.
func nftFamily(f instance.Family) nftables.TableFamily {
	if f == instance.V6 {
		return nftables.TableFamilyIPv6
	}
	return nftables.TableFamilyIPv4
}

// ensureTable makes the instance's firewall table of a family anew, here that of IPv4:
//
//	table ip vlocalS {
//	  chain postrouting { type nat hook postrouting priority srcnat;
//	    ip saddr NODES oifname != "vlocalS" masquerade
//	    ip saddr PODS  oifname != "vlocalS" masquerade }
//	}
//
// Without it nodes could pull no image and pods reach nothing beyond the machine.
func ensureTable(in *instance.Instance, f instance.Family) error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	table := c.AddTable(&nftables.Table{Family: nftFamily(f), Name: tableName(in)})
	c.FlushTable(table)
	chain := c.AddChain(&nftables.Chain{
		Name: "postrouting", Table: table, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
	})
	for _, from := range []netip.Prefix{in.Slot.NodeNet(f), in.Slot.PodNet(f)} {
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: masqueradeFrom(from, in.Slot.Bridge())})
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("make firewall table %s %s: %w", f, tableName(in), err)
	}
	return nil
}

// masqueradeFrom matches packets from a network that leave by another link than the given one.
func masqueradeFrom(from netip.Prefix, link string) []expr.Any {
	base := from.Masked().Addr().AsSlice()
	mask := net.CIDRMask(from.Bits(), from.Addr().BitLen())
	source := &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 12, Len: uint32(len(base))}
	if from.Addr().Is6() {
		source.Offset = 8
	}
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, link)
	return []expr.Any{
		source,
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: source.Len, Mask: mask, Xor: make([]byte, len(mask))},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: base},
		&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: name},
		&expr.Masq{},
	}
}

// tryRules makes tables as kube-proxy's for Services of IPv6, which ask whether an address is the node's, and as those
// of pods whose guests have the pod's address.
func tryRules() error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	for _, f := range []nftables.TableFamily{nftables.TableFamilyIPv6, nftables.TableFamilyBridge} {
		table := c.AddTable(&nftables.Table{Family: f, Name: "try"})
		chain := c.AddChain(&nftables.Chain{
			Name: "input", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookInput,
			Priority: nftables.ChainPriorityFilter,
		})
		if f == nftables.TableFamilyIPv6 {
			c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
				&expr.Fib{Register: 1, FlagDADDR: true, ResultADDRTYPE: true},
			}})
		}
	}
	if err := c.Flush(); err != nil {
		return fmt.Errorf("its kernel lacks rules for IPv6 that kube-proxy and guests need: %w", err)
	}
	return nil
}

func deleteTable(in *instance.Instance, f instance.Family) error {
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	c.DelTable(&nftables.Table{Family: nftFamily(f), Name: tableName(in)})
	if err := c.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete firewall table %s %s: %w", f, tableName(in), err)
	}
	return nil
}

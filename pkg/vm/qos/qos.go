// Package qos reads and writes the rate limits of a guest's disks and interfaces: annotations of a VMI, or of a VM's
// template, one for each disk and interface that has limits.
//
//	disk.virtkit.io/root: iops=500,bps=50Mi
//	disk.virtkit.io/data: read-bps=100Mi,write-bps=20Mi
//	interface.virtkit.io/default: in=10Mi,out=10Mi
//
// Bytes and requests are counted each second; a limit that is left out, and a disk or interface without an annotation,
// has none. virt-api admits the annotations by Parse, virt-controller carries them to the VMI of a running guest,
// virt-launcher gives the limits of disks to QEMU and virt-handler those of interfaces to the kernel, and virtctl
// writes and shows them.
package qos

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// The prefixes of the annotations; the name of the disk or interface follows.
const (
	DiskPrefix      = "disk.virtkit.io/"
	InterfacePrefix = "interface.virtkit.io/"
)

const (
	// MinRate is the least rate in bytes a second, one block; less is a number that was given without its unit.
	MinRate = 4 << 10
	// MaxRate is the highest rate of bytes and of requests; QEMU's (THROTTLE_VALUE_MAX).
	MaxRate = 1_000_000_000_000_000
	// maxText is longer than any text that makes sense.
	maxText = 256
)

// Disk are the limits of a disk, a second; 0 is no limit.
type Disk struct {
	// IOPS bounds reads and writes together, and excludes ReadIOPS and WriteIOPS.
	IOPS, ReadIOPS, WriteIOPS uint64
	// BPS bounds the bytes of both together, and excludes ReadBPS and WriteBPS.
	BPS, ReadBPS, WriteBPS uint64
}

// Interface are the limits of an interface, bytes a second; 0 is no limit. In is to the guest, Out from it.
type Interface struct{ In, Out uint64 }

// Limits are those of a guest, by the names of its disks and interfaces.
type Limits struct {
	Disks      map[string]Disk
	Interfaces map[string]Interface
}

// limit is one KEY=RATE of an annotation.
type limit struct {
	key   string
	bytes bool
	value *uint64
}

func (d *Disk) limits() []limit {
	return []limit{
		{"iops", false, &d.IOPS},
		{"read-iops", false, &d.ReadIOPS},
		{"write-iops", false, &d.WriteIOPS},
		{"bps", true, &d.BPS},
		{"read-bps", true, &d.ReadBPS},
		{"write-bps", true, &d.WriteBPS},
	}
}

func (i *Interface) limits() []limit { return []limit{{"in", true, &i.In}, {"out", true, &i.Out}} }

// ParseDisk reads the limits of a disk. The errors say what is wrong and what fixes it.
func ParseDisk(text string) (Disk, error) {
	var d Disk
	if err := parse(text, d.limits(), "iops=500,bps=50Mi"); err != nil {
		return Disk{}, err
	}
	switch {
	case d.IOPS > 0 && d.ReadIOPS+d.WriteIOPS > 0:
		return Disk{}, errors.New("iops bounds reads and writes together; give it, or read-iops and write-iops")
	case d.BPS > 0 && d.ReadBPS+d.WriteBPS > 0:
		return Disk{}, errors.New("bps bounds reads and writes together; give it, or read-bps and write-bps")
	}
	return d, nil
}

// ParseInterface reads the limits of an interface, as ParseDisk does.
func ParseInterface(text string) (Interface, error) {
	var i Interface
	if err := parse(text, i.limits(), "in=10Mi,out=10Mi"); err != nil {
		return Interface{}, err
	}
	return i, nil
}

// parse reads KEY=RATE,… into the limits of those keys.
func parse(text string, into []limit, example string) error {
	switch {
	case strings.TrimSpace(text) == "":
		return fmt.Errorf("says no limit; give some, such as %s, or leave it out", example)
	case len(text) > maxText:
		return fmt.Errorf("is longer than %d bytes; give limits such as %s", maxText, example)
	}
	for part := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(part, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		at := slices.IndexFunc(into, func(l limit) bool { return l.key == key })
		switch {
		case !ok:
			return fmt.Errorf("%q is no KEY=RATE; give limits such as %s", part, example)
		case at < 0:
			return fmt.Errorf("%q is no limit; use %s", key, keys(into))
		case *into[at].value != 0:
			return fmt.Errorf("%s is given twice; give it once", key)
		}
		rate, err := parseRate(value, into[at].bytes)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		*into[at].value = rate
	}
	return nil
}

func parseRate(text string, bytes bool) (uint64, error) {
	what, example, least := "requests a second", "500", int64(1)
	if bytes {
		what, example, least = "bytes a second", "50Mi", MinRate
	}
	quantity, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, fmt.Errorf("%q is no number of %s, such as %s", text, what, example)
	}
	rate := quantity.Value()
	switch {
	case quantity.Sign() <= 0:
		return 0, fmt.Errorf("%s is no limit: a guest needs some; leave it out for no limit", text)
	case quantity.CmpInt64(MaxRate) > 0:
		return 0, fmt.Errorf("%s is more than can be limited; leave it out for no limit", text)
	case quantity.CmpInt64(least) < 0 && bytes:
		return 0, fmt.Errorf("%s is less than 4Ki a second; give bytes with their unit, such as 50Mi", text)
	case quantity.CmpInt64(rate) != 0:
		return 0, fmt.Errorf("%s is no whole number of %s; use one, such as %s", text, what, example)
	}
	return uint64(rate), nil
}

func keys(of []limit) string {
	var out []string
	for _, l := range of {
		out = append(out, l.key)
	}
	last := len(out) - 1
	return strings.Join(out[:last], ", ") + " or " + out[last]
}

// String writes the limits as ParseDisk reads them; empty without any.
func (d Disk) String() string { return write(d.limits()) }

// String writes the limits as ParseInterface reads them; empty without any.
func (i Interface) String() string { return write(i.limits()) }

func write(limits []limit) string {
	var out []string
	for _, l := range limits {
		switch {
		case *l.value == 0:
		case l.bytes:
			out = append(out, l.key+"="+Bytes(*l.value))
		default:
			out = append(out, l.key+"="+strconv.FormatUint(*l.value, 10))
		}
	}
	return strings.Join(out, ",")
}

// Bytes writes a number of bytes with the largest binary unit of which it is a whole number.
func Bytes(n uint64) string {
	return resource.NewQuantity(int64(min(n, MaxRate)), resource.BinarySI).String()
}

// Is reports an annotation with limits.
func Is(key string) bool {
	return strings.HasPrefix(key, DiskPrefix) || strings.HasPrefix(key, InterfacePrefix)
}

// Of reads the limits in the annotations of a VMI or of a template. What is malformed counts as not there: virt-api
// admits none.
func Of(annotations map[string]string) Limits {
	out := Limits{Disks: map[string]Disk{}, Interfaces: map[string]Interface{}}
	for key, text := range annotations {
		if name, ok := strings.CutPrefix(key, DiskPrefix); ok {
			if d, err := ParseDisk(text); err == nil {
				out.Disks[name] = d
			}
		}
		if name, ok := strings.CutPrefix(key, InterfacePrefix); ok {
			if i, err := ParseInterface(text); err == nil {
				out.Interfaces[name] = i
			}
		}
	}
	return out
}

// Names returns the names of what has limits, in order.
func Names[T any](limits map[string]T) []string { return slices.Sorted(maps.Keys(limits)) }

// Text writes limits in one line, for comparing and logging.
func Text[T fmt.Stringer](limits map[string]T) string {
	var out []string
	for _, name := range Names(limits) {
		out = append(out, name+": "+limits[name].String())
	}
	return strings.Join(out, "; ")
}

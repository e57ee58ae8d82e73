package sizing

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	v1 "kubevirt.io/api/core/v1"
)

// Realtime returns which of a guest's vCPUs run with real-time priority, by their number; nil means none. Without a
// mask it is all. A mask has numbers, ranges, and numbers to leave out, which go before: 0-3,^1.
func Realtime(spec *v1.DomainSpec) ([]bool, error) {
	if spec.CPU == nil || spec.CPU.Realtime == nil {
		return nil, nil
	}
	sockets, _ := Sockets(spec)
	out := make([]bool, min(max(sockets*PerSocket(spec), 0), MaxVCPUs))
	mask := strings.TrimSpace(spec.CPU.Realtime.Mask)
	if mask == "" {
		for i := range out {
			out[i] = true
		}
		return out, nil
	}
	var without []int
	for part := range strings.SplitSeq(mask, ",") {
		part = strings.TrimSpace(part)
		text, not := strings.CutPrefix(part, "^")
		first, last, ranged := strings.Cut(text, "-")
		from, err := vcpu(first, len(out))
		to := from
		if err == nil && ranged {
			to, err = vcpu(last, len(out))
		}
		switch {
		case err != nil:
			return nil, err
		case ranged && (not || to < from):
			return nil,
				fmt.Errorf("%q is neither a vCPU, nor a range such as 0-3, nor one to leave out such as ^1", part)
		case not:
			without = append(without, from)
		}
		for i := from; i <= to && !not; i++ {
			out[i] = true
		}
	}
	for _, i := range without {
		out[i] = false
	}
	for _, real := range out {
		if real {
			return out, nil
		}
	}
	return nil, errors.New("no vCPU is left")
}

func vcpu(text string, count int) (int, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("%q is not the number of a vCPU", text)
	}
	if int(n) >= count {
		return 0, fmt.Errorf("there is no vCPU %d: the guest has %d, from 0", n, count)
	}
	return int(n), nil
}

package e2e

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// What a run of tests within a test depends on. The file has no build tag, so that it is tested without a cluster.

// upFlags returns the flags of virt-local up for an instance with that storage and that family of addresses; "" leaves
// one to virt-local.
func upFlags(storage, family string) []string {
	flags := []string{"--multus"}
	if storage != "" {
		flags = append(flags, "--storage", storage)
	}
	if family != "" {
		flags = append(flags, "--ip-family", family)
	}
	return flags
}

// innerEnv returns the environment of tests that run within a test, on an instance that the test has made: that of the
// test, but for the cluster.
func innerEnv(environ []string, name, kubeconfig string) []string {
	return append(slices.DeleteFunc(slices.Clone(environ), func(v string) bool {
		key, _, _ := strings.Cut(v, "=")
		return key == "VIRTKIT_E2E_CLUSTER" || key == "VIRTKIT_E2E_FAMILY" || key == "KUBECONFIG"
	}), "VIRTKIT_E2E_CLUSTER="+name, "KUBECONFIG="+kubeconfig)
}

// innerTime returns how long tests within a test may run: no longer than the test itself may, which has to take their
// instance down when they have ended. It is 0 when too little time is left.
func innerTime(now, deadline time.Time, bounded bool) time.Duration {
	const most, down = time.Hour, 5 * time.Minute
	if !bounded {
		return most
	}
	return max(0, min(most, deadline.Sub(now)-down))
}

// lacksIPv6 reports that the machine cannot have IPv6: the instance that the tests made without a word about families
// has none (six). An instance that others made, or of a family that was asked for, says nothing.
func lacksIPv6(six bool, cluster, family string) bool { return !six && cluster == "" && family == "" }

// TestInner: tests within a test keep the machine's storage, have another cluster, and end in time.
func TestInner(t *testing.T) {
	if got := upFlags("hostpath", "ipv6"); !slices.Equal(got,
		[]string{"--multus", "--storage", "hostpath", "--ip-family", "ipv6"}) {
		t.Errorf("up %v", got)
	}
	if got := upFlags("", ""); !slices.Equal(got, []string{"--multus"}) {
		t.Errorf("up %v", got)
	}
	env := innerEnv([]string{
		"PATH=/bin", "KUBECONFIG=/outer", "VIRTKIT_E2E_CLUSTER=outer", "VIRTKIT_E2E_STORAGE=hostpath",
		"VIRTKIT_E2E_FAMILY=dual",
	}, "inner", "/inner")
	if want := []string{
		"PATH=/bin", "VIRTKIT_E2E_STORAGE=hostpath", "VIRTKIT_E2E_CLUSTER=inner", "KUBECONFIG=/inner",
	}; !slices.Equal(env, want) {
		t.Errorf("environment %v, want %v", env, want)
	}
	now := time.Unix(1e9, 0)
	for name, tc := range map[string]struct {
		left    time.Duration
		bounded bool
		want    time.Duration
	}{
		"no bound":     {0, false, time.Hour},
		"much is left": {3 * time.Hour, true, time.Hour},
		"less is left": {50 * time.Minute, true, 45 * time.Minute},
		"too little":   {4 * time.Minute, true, 0},
		"it is over":   {-time.Minute, true, 0},
	} {
		if got := innerTime(now, now.Add(tc.left), tc.bounded); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
	for name, tc := range map[string]struct {
		six             bool
		cluster, family string
		want            bool
	}{
		"it has both":          {true, "", "", false},
		"it has IPv4 alone":    {false, "", "", true},
		"IPv4 was asked for":   {false, "", "ipv4", false},
		"others made it":       {false, "virt-local", "", false},
		"others made it, both": {true, "virt-local", "", false},
	} {
		if got := lacksIPv6(tc.six, tc.cluster, tc.family); got != tc.want {
			t.Errorf("%s: lacks IPv6 %t", name, got)
		}
	}
}

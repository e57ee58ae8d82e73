package migrations

import (
	"slices"
	"testing"
)

func TestObstacles(t *testing.T) {
	claim := Obstacle{Claim, "data", "c cannot be used on two nodes at once; its access mode would have to be another"}
	bridge := Obstacle{Interface, "default", "has the pod's own address (bridge); masquerade can migrate"}
	for message, want := range map[string][]Obstacle{
		`volume "data": PersistentVolumeClaim c cannot be used on two nodes at once; its access mode would have to be ` +
			`another; interface "default" has the pod's own address (bridge); masquerade can migrate`: {claim, bridge},
		`volume "d\"x": hostDisk /f is this node's`:    {{HostDisk, `d"x`, "/f is this node's"}},
		"spec.nodeSelector ties it; to node one":       {{Field, "nodeSelector", "ties it; to node one"}},
		"spec.a is so; the feature invtsc of b is not": {{Field, "a", "is so"}, {Feature, "invtsc", "of b is not"}},
		"the persistent state of TPM is on a claim":    {{State, "", "of TPM is on a claim"}},
		"libvirt says no; never":                       {{Unknown, "", "libvirt says no; never"}},
		"volume data is odd":                           {{Unknown, "", "volume data is odd"}},
	} {
		if got := EncodeObstacles(want); got != message {
			t.Errorf("%+v: %q, want %q", want, got, message)
		}
		if got := ParseObstacles(message); !slices.Equal(got, want) {
			t.Errorf("%q: %+v, want %+v", message, got, want)
		}
	}
}

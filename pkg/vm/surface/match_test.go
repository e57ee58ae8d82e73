package surface

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	"kubevirt.io/api/migrations/v1alpha1"
)

type labels = map[string]string

func policyFor(name string, vmi, namespace labels) v1alpha1.MigrationPolicy {
	return v1alpha1.MigrationPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.MigrationPolicySpec{
		Selectors: &v1alpha1.Selectors{VirtualMachineInstanceSelector: vmi, NamespaceSelector: namespace},
	}}
}

func TestMatchPolicy(t *testing.T) {
	vmi, namespace := labels{"app": "web", "tier": "gold"}, labels{"team": "a", "tier": "gold"}
	leaving := policyFor("leaving", labels{"app": "web", "tier": "gold"}, labels{"team": "a", "tier": "gold"})
	leaving.DeletionTimestamp = &metav1.Time{}
	for name, tc := range map[string]struct {
		policies []v1alpha1.MigrationPolicy
		want     string
	}{
		"none":            {},
		"no selectors":    {[]v1alpha1.MigrationPolicy{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}, ""},
		"empty selectors": {[]v1alpha1.MigrationPolicy{policyFor("all", nil, nil)}, "all"},
		"another value":   {[]v1alpha1.MigrationPolicy{policyFor("a", labels{"app": "db"}, nil)}, ""},
		"a missing label": {[]v1alpha1.MigrationPolicy{policyFor("a", labels{"zone": ""}, nil)}, ""},
		"both must match": {[]v1alpha1.MigrationPolicy{policyFor("a", labels{"app": "web"}, labels{"team": "b"})}, ""},
		"the most labels": {
			[]v1alpha1.MigrationPolicy{
				policyFor("a", labels{"app": "web"}, nil), policyFor("b", nil, labels{"team": "a", "tier": "gold"}),
			},
			"b",
		},
		"the VMI's over the": {
			[]v1alpha1.MigrationPolicy{
				policyFor("a", nil, labels{"team": "a"}), policyFor("b", labels{"app": "web"}, nil),
			},
			"b",
		},
		"the first by name": {
			[]v1alpha1.MigrationPolicy{
				policyFor("b", labels{"app": "web"}, nil), policyFor("a", labels{"tier": "gold"}, nil),
			},
			"a",
		},
		"one that is going": {[]v1alpha1.MigrationPolicy{leaving, policyFor("all", nil, nil)}, "all"},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if p := MatchPolicy(tc.policies, vmi, namespace); p != nil {
				got = p.Name
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// Each field of a policy goes before the cluster's, which is left as it was.
func TestConfigured(t *testing.T) {
	cluster := Migrations(nil)
	before := cluster.DeepCopy()
	for name, tc := range map[string]struct {
		spec v1alpha1.MigrationPolicySpec
		set  func(*v1.MigrationConfiguration)
	}{
		"nothing": {v1alpha1.MigrationPolicySpec{}, func(*v1.MigrationConfiguration) {}},
		"auto-converge": {
			v1alpha1.MigrationPolicySpec{AllowAutoConverge: new(true)},
			func(c *v1.MigrationConfiguration) { c.AllowAutoConverge = new(true) },
		},
		"bandwidth": {
			v1alpha1.MigrationPolicySpec{BandwidthPerMigration: new(resource.MustParse("1Gi"))},
			func(c *v1.MigrationConfiguration) {
				c.BandwidthPerMigration = new(resource.MustParse("1Gi"))
			},
		},
		"time": {
			v1alpha1.MigrationPolicySpec{CompletionTimeoutPerGiB: new(int64(7))},
			func(c *v1.MigrationConfiguration) { c.CompletionTimeoutPerGiB = new(int64(7)) },
		},
		"post-copy": {v1alpha1.MigrationPolicySpec{AllowPostCopy: new(true)}, func(c *v1.MigrationConfiguration) {
			c.AllowPostCopy, c.AllowWorkloadDisruption = new(true), new(true)
		}},
		"disruption": {
			v1alpha1.MigrationPolicySpec{AllowPostCopy: new(true), AllowWorkloadDisruption: new(false)},
			func(c *v1.MigrationConfiguration) { c.AllowPostCopy = new(true) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := cluster.DeepCopy()
			tc.set(want)
			got := Configured(cluster, &v1alpha1.MigrationPolicy{Spec: tc.spec})
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(before, &cluster); diff != "" {
				t.Errorf("the cluster's configuration changed: %s", diff)
			}
		})
	}
}

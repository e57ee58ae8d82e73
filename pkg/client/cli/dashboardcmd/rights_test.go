package dashboardcmd

import (
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "kubevirt.io/api/core/v1"

	"github.com/virtkit/virtkit/pkg/client/action/client"
)

// TestRightsIntoGuests asks for the rights of the group that has consoles and screens.
func TestRightsIntoGuests(t *testing.T) {
	t.Parallel()
	a := &actions{rules: map[string]*authorizationv1.SubjectRulesReviewStatus{
		"prod": {ResourceRules: []authorizationv1.ResourceRule{{
			Verbs: []string{"get"}, APIGroups: []string{v1.SubresourceStorageGroupVersion.Group},
			Resources: []string{client.VMIs + "/console"},
		}}},
	}}
	if why := a.ForbiddenTo("prod", "get", client.VMIs+"/console"); why != "" {
		t.Error(why)
	}
	const want = "you may not get virtualmachineinstances/vnc in prod"
	if why := a.ForbiddenTo("prod", "get", client.VMIs+"/vnc"); why != want {
		t.Errorf("%q", why)
	}
}

// TestRightsToNodes: who may not patch nodes reads that of the cluster.
func TestRightsToNodes(t *testing.T) {
	t.Parallel()
	a := &actions{rules: map[string]*authorizationv1.SubjectRulesReviewStatus{
		"prod": {},
		"all": {ResourceRules: []authorizationv1.ResourceRule{{
			Verbs: []string{"patch"}, APIGroups: []string{""}, Resources: []string{"nodes"},
		}}},
	}}
	for namespace, want := range map[string]string{"prod": "you may not patch nodes of the cluster", "all": ""} {
		if why := a.ForbiddenTo(namespace, "patch", client.Nodes); why != want {
			t.Errorf("%s: %q, not %q", namespace, why, want)
		}
	}
}

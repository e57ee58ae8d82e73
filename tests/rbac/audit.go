package rbac

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/virtkit/virtkit/pkg/names"
)

// call is a request of a component to the API server.
type call struct {
	right   Right
	refused bool
}

// event is what is read of an audit.k8s.io/v1 Event.
type event struct {
	Stage string `json:"stage"`
	Verb  string `json:"verb"`
	User  struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef *struct {
		APIGroup    string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
	} `json:"objectRef"`
	Annotations map[string]string `json:"annotations"`
}

const serviceAccounts = "system:serviceaccount:" + names.Namespace + ":"

// readCalls reads the components' calls; those on no resource, such as discovery, are everybody's.
func readCalls(log io.Reader) ([]call, error) {
	var calls []call
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		component, ours := strings.CutPrefix(e.User.Username, serviceAccounts)
		if !ours || e.ObjectRef == nil || e.Stage == "RequestReceived" {
			continue
		}
		resource := e.ObjectRef.Resource
		if e.ObjectRef.Subresource != "" {
			resource += "/" + e.ObjectRef.Subresource
		}
		calls = append(calls, call{
			right:   Right{component, e.ObjectRef.APIGroup, resource, e.Verb, e.ObjectRef.Namespace == names.Namespace},
			refused: e.Annotations["authorization.k8s.io/decision"] == "forbid",
		})
	}
	return calls, lines.Err()
}

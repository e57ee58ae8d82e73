// Package rbac compares what the components of virtkit may do with the API, manifests/base/rbac-*.yaml, with what they
// did, the API server's audit log of an end-to-end run. A right that nobody used is one too many, unless unused.go
// says why it is there; a refusal is one too few.
//
// Check is called at the end of tests/e2e, with the log of its instance.
package rbac

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/virtkit/virtkit/manifests"
	"github.com/virtkit/virtkit/pkg/names"
)

// Right is one verb on one resource for one component.
type Right struct {
	Component string // virt-api, virt-controller, virt-exportproxy, virt-handler
	Group     string // "" is the core group
	Resource  string // with the subresource: virtualmachines/status
	Verb      string
	// Local is a right in namespace kubevirt only. A call there may be made by either right.
	Local bool
}

func (r Right) String() string {
	resource := r.Resource
	if r.Group != "" {
		resource += "." + r.Group
	}
	where := ""
	if r.Local {
		where = " in namespace " + names.Namespace
	}
	return fmt.Sprintf("%s: %s %s%s", r.Component, r.Verb, resource, where)
}

// Granted lists the rights of the components, sorted, each once.
func Granted() ([]Right, error) {
	files, err := fs.Glob(manifests.FS, "base/rbac-virt-*.yaml")
	if err != nil {
		return nil, err
	}
	var rights []Right
	for _, name := range files {
		text, err := manifests.FS.ReadFile(name)
		if err != nil {
			return nil, err
		}
		more, err := grantedBy(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		rights = append(rights, more...)
	}
	sortRights(rights)
	return slices.Compact(rights), nil
}

// grantedBy reads the roles of one file. A role is named after its component, so bindings need not be read;
// the test of package manifests holds the names.
func grantedBy(text []byte) ([]Right, error) {
	var rights []Right
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		var o unstructured.Unstructured
		err := decoder.Decode(&o)
		if errors.Is(err, io.EOF) {
			return rights, nil
		}
		if err != nil {
			return nil, err
		}
		if kind := o.GetKind(); kind != "ClusterRole" && kind != "Role" {
			continue
		}
		var role rbacv1.Role
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
			return nil, err
		}
		component := strings.TrimPrefix(role.Name, "kubevirt.io:")
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						rights = append(rights, Right{component, group, resource, verb, o.GetKind() == "Role"})
					}
				}
			}
		}
	}
}

// Check compares the rights with an audit log (JSON lines of audit.k8s.io/v1 at level Metadata). The error lists
// every refusal and, where the log is of all tests, every unused right.
func Check(log io.Reader, all bool) error {
	rights, err := Granted()
	if err != nil {
		return err
	}
	calls, err := readCalls(log)
	if err != nil {
		return fmt.Errorf("read the audit log: %w", err)
	}
	return compare(rights, unused, calls, all)
}

// compare does Check's work on plain values.
func compare(rights []Right, excused map[Right]string, calls []call, all bool) error {
	if len(calls) == 0 {
		return errors.New("the audit log has no call of any component; it proves nothing")
	}
	var problems []error
	used := map[Right]bool{}
	refused := map[Right]bool{}
	for _, c := range calls {
		if c.refused {
			refused[c.right] = true
			continue
		}
		use(used, c.right)
		if c.right.Verb == "watch" {
			// A watch begins with the list where the server can do that, and falls back to a request of its own.
			c.right.Verb = "list"
			use(used, c.right)
		}
	}
	for _, r := range sorted(refused) {
		problems = append(problems, fmt.Errorf("refused: %s", r))
	}
	known := map[Right]bool{}
	for _, r := range rights {
		known[r] = true
		if all && !used[r] && excused[r] == "" {
			problems = append(problems, fmt.Errorf("never used: %s; remove it from manifests/base/rbac-%s.yaml, or "+
				"give a reason in tests/rbac/unused.go", r, r.Component))
		}
	}
	for _, r := range sorted(excused) {
		if !known[r] {
			problems = append(problems, fmt.Errorf("excused but not granted: %s", r))
		}
	}
	return errors.Join(problems...)
}

// use marks a right, and the one for the whole cluster, as used: either would have allowed the call.
func use(used map[Right]bool, r Right) {
	used[r] = true
	r.Local = false
	used[r] = true
}

func sorted[V any](rights map[Right]V) []Right {
	var all []Right
	for r := range rights {
		all = append(all, r)
	}
	sortRights(all)
	return all
}

func sortRights(rights []Right) {
	slices.SortFunc(rights, func(a, b Right) int { return strings.Compare(a.String(), b.String()) })
}

package rbac

import (
	"strings"
	"testing"
)

func TestGranted(t *testing.T) {
	rights, err := Granted()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, r := range rights {
		seen[r.Component] = true
	}
	for _, component := range []string{"virt-api", "virt-controller", "virt-exportproxy", "virt-handler"} {
		if !seen[component] {
			t.Errorf("%s has no rights", component)
		}
	}
	if len(seen) != 4 {
		t.Errorf("rights of %v", seen)
	}
	for right := range unused {
		if !contains(rights, right) {
			t.Errorf("unused.go excuses what is not granted: %s", right)
		}
	}
}

func contains(rights []Right, r Right) bool {
	for _, have := range rights {
		if have == r {
			return true
		}
	}
	return false
}

const log = `
{"stage":"ResponseComplete","verb":"list","user":{"username":"system:serviceaccount:kubevirt:virt-api"},"objectRef":{"resource":"pods","namespace":"kubevirt"},"annotations":{"authorization.k8s.io/decision":"allow"}}
{"stage":"ResponseComplete","verb":"patch","user":{"username":"system:serviceaccount:kubevirt:virt-api"},"objectRef":{"apiGroup":"kubevirt.io","resource":"virtualmachines","subresource":"status","namespace":"a"},"annotations":{"authorization.k8s.io/decision":"allow"}}
{"stage":"ResponseComplete","verb":"delete","user":{"username":"system:serviceaccount:kubevirt:virt-api"},"objectRef":{"resource":"nodes"},"annotations":{"authorization.k8s.io/decision":"forbid"}}
{"stage":"ResponseComplete","verb":"get","user":{"username":"system:serviceaccount:kubevirt:virt-api"},"annotations":{"authorization.k8s.io/decision":"allow"}}
{"stage":"ResponseComplete","verb":"get","user":{"username":"system:serviceaccount:default:default"},"objectRef":{"resource":"secrets"}}
`

func TestCompare(t *testing.T) {
	calls, err := readCalls(strings.NewReader(strings.TrimSpace(log)))
	if err != nil {
		t.Fatal(err)
	}
	if len(calls) != 3 {
		t.Fatalf("%d calls, want 3: %v", len(calls), calls)
	}
	local := Right{"virt-api", "", "pods", "list", true}
	status := Right{"virt-api", "kubevirt.io", "virtualmachines/status", "patch", false}
	tooMuch := Right{"virt-api", "", "secrets", "get", true}
	excused := Right{"virt-api", "", "configmaps", "get", true}
	missing := Right{"virt-api", "", "configmaps", "list", true}

	rights, excuses := []Right{local, status, tooMuch, excused}, map[Right]string{excused: "rare", missing: "gone"}
	err = compare(rights, excuses, calls, true)
	if err == nil {
		t.Fatal("no problem found")
	}
	for _, want := range []string{
		"refused: virt-api: delete nodes",
		"never used: virt-api: get secrets in namespace kubevirt",
		"excused but not granted: virt-api: list configmaps",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in:\n%v", want, err)
		}
	}
	if n := strings.Count(err.Error(), "\n") + 1; n != 3 {
		t.Errorf("%d problems, want 3:\n%v", n, err)
	}
	if err := compare(rights, excuses, calls, false); err == nil || strings.Contains(err.Error(), "never used") ||
		!strings.Contains(err.Error(), "refused: virt-api: delete nodes") {
		t.Errorf("of some tests: %v", err)
	}
	if err := compare([]Right{local}, nil, calls[:1], true); err != nil {
		t.Errorf("a right that was used: %v", err)
	}
	if err := compare([]Right{local}, nil, nil, true); err == nil {
		t.Error("an empty log proves something")
	}
}

func TestBrokenLog(t *testing.T) {
	if _, err := readCalls(strings.NewReader("{}\nnot json")); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("%v, want an error about line 2", err)
	}
}

package client

import "testing"

func TestNotFoundSaysWhere(t *testing.T) {
	for path, want := range map[string]string{
		"/apis/kubevirt.io/v1/namespaces/shop/virtualmachines/web":                    "shop",
		"/clusters/one/api/v1/namespaces/shop/pods/web/log":                           "shop",
		"/apis/subresources.kubevirt.io/v1/namespaces/shop/virtualmachines/web/start": "shop",
		"/api/v1/namespaces/shop":                                                     "",
		"/api/v1/nodes/node1":                                                         "",
	} {
		if got := namespaceOf(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	status := func(message, kind, name string) string {
		return `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"` + message +
			`","reason":"NotFound","details":{"name":"` + name + `","kind":"` + kind + `"},"code":404}`
	}
	for body, want := range map[string]string{
		status(`pods \"web\" not found`, "pods", "web"):                                                       status(`pods \"web\" not found in namespace \"shop\"`, "pods", "web"),
		status(`nodes \"n\" not found`, "nodes", "n"):                                                         "",
		status(`virtualmachineclusterpreferences.x \"n\" not found`, "virtualmachineclusterpreferences", "n"): "",
		status("the server could not find the requested resource", "", ""):                                    "",
		status(`\"web\" not found in this guest`, "users", "web"):                                             "",
		"404 page not found": "",
	} {
		if want == "" {
			want = body
		}
		if got := string(located([]byte(body), "shop")); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}

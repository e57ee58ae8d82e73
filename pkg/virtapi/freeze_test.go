package virtapi

import (
	"io"
	"net/http"
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"
)

func TestFreezeOrPause(t *testing.T) {
	for name, tc := range map[string]struct {
		query, body, answer string
		code                int
		message, asked      string
	}{
		"plain":      {"", `{"unfreezeTimeout":"30s"}`, "", 202, "", "after=30s"},
		"pause":      {"?withoutAgent=pause", `{"unfreezeTimeout":"30s"}`, `{"quiesced":"Paused"}`, 200, `{"quiesced":"Paused"}`, "after=30s&withoutAgent=pause"},
		"default":    {"?withoutAgent=pause", "", `{"quiesced":"Agent"}`, 200, `{"quiesced":"Agent"}`, "after=5m0s&withoutAgent=pause"},
		"never":      {"?withoutAgent=pause", `{"unfreezeTimeout":"0s"}`, "", 400, "must go on by itself", ""},
		"else":       {"?withoutAgent=stop", "", "", 400, `withoutAgent: \"stop\" is not pause`, ""},
		"older node": {"?withoutAgent=pause", "", "", 500, "may be of an older version", "after=5m0s&withoutAgent=pause"},
	} {
		t.Run(name, func(t *testing.T) {
			asked := ""
			c := newCluster(t, pairOf(v1.RunStrategyAlways, instance(v1.Running)), func(w http.ResponseWriter, r *http.Request) {
				asked = r.URL.RawQuery
				if tc.answer == "" {
					w.WriteHeader(http.StatusAccepted)
				}
				_, _ = io.WriteString(w, tc.answer) // a client that has gone
			})
			code, body := c.do(http.MethodPut, "virtualmachineinstances/vm/freeze"+tc.query, tc.body)
			if code != tc.code || !strings.Contains(body, tc.message) || asked != tc.asked {
				t.Errorf("%d %s, asked %q", code, body, asked)
			}
		})
	}
}

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
		"plain": {"", `{"unfreezeTimeout":"30s"}`, "", 202, "", "after=30s"},
		"pause": {
			"?withoutAgent=pause", `{"unfreezeTimeout":"30s"}`, `{"quiesced":"Paused"}`, 200, `{"quiesced":"Paused"}`,
			"after=30s&withoutAgent=pause",
		},
		"default": {
			"?withoutAgent=pause", "", `{"quiesced":"Agent"}`, 200, `{"quiesced":"Agent"}`,
			"after=5m0s&withoutAgent=pause",
		},
		"never": {"?withoutAgent=pause", `{"unfreezeTimeout":"0s"}`, "", 400, "must go on by itself", ""},
		"else":  {"?withoutAgent=stop", "", "", 400, `withoutAgent: \"stop\" is not pause`, ""},
		"memory": {
			"?withoutAgent=pause&memory=vmsnapshot-memory-1", `{"unfreezeTimeout":"30s"}`,
			`{"quiesced":"Paused","memory":{"began":"2026-01-01T00:00:00Z","size":5}}`, 200, `"size":5`,
			"after=30s&memory=vmsnapshot-memory-1&withoutAgent=pause",
		},
		"no volume": {
			"?withoutAgent=pause&memory=vmsnapshot-memory-2", "", "", 400,
			`the VMI has no volume \"vmsnapshot-memory-2\"`, "",
		},
		"a dump":   {"?withoutAgent=pause&memory=dump", "", "", 400, `the VMI has no volume \"dump\"`, ""},
		"no pause": {"?memory=vmsnapshot-memory-1", "", "", 400, "it takes withoutAgent=pause", ""},
		"older node": {
			"?withoutAgent=pause", "", "", 500, "may be of an older version", "after=5m0s&withoutAgent=pause",
		},
	} {
		t.Run(name, func(t *testing.T) {
			asked := ""
			vmi := instance(v1.Running)
			for _, name := range []string{"vmsnapshot-memory-1", "dump"} {
				vmi.Spec.Volumes = append(vmi.Spec.Volumes,
					v1.Volume{Name: name, VolumeSource: v1.VolumeSource{MemoryDump: &v1.MemoryDumpVolumeSource{}}})
			}
			c := newCluster(t, pairOf(v1.RunStrategyAlways, vmi), func(w http.ResponseWriter, r *http.Request) {
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

package chaos

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"
)

func TestReport(t *testing.T) {
	step := func(k Kind, p Phase) Step { return Step{Kind: k, Phase: p} }
	r := Report{Seed: 7, Planned: 64, Outcomes: []Outcome{
		{Step: step(QEMU, Running), Recovery: 9 * time.Second},
		{Step: step(API, Migrating), Recovery: 2 * time.Second},
		{Step: step(QEMU, Running), Recovery: 3 * time.Second},
		{Step: step(QEMU, Running), Recovery: 4 * time.Second},
	}}
	var text bytes.Buffer
	if err := r.WriteTable(&text); err != nil || r.Failed() {
		t.Errorf("%v, failed %v", err, r.Failed())
	}
	golden(t, "passed.golden", text.String())

	r.Outcomes = append(
		r.Outcomes,
		Outcome{Step: step(Kubelet, Stopping), Killed: "kubelet 17 on node1", Stuck: "vm alpha shows Stopping"},
		Outcome{Step: step(Kubelet, Starting), Killed: "kubelet 18 on node2", Findings: Findings{
			Lost: []string{"a", "b", "c", "d", "e", "f", "g"}, Doubled: []string{"x"},
		}, Ended: []string{"beta has booted anew"}},
	)
	text.Reset()
	if err := r.WriteTable(&text); err != nil || !r.Failed() {
		t.Errorf("%v, failed %v", err, r.Failed())
	}
	golden(t, "failed.golden", text.String())

	text.Reset()
	var back Report
	if err := r.WriteJSON(&text); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text.Bytes(), &back); err != nil || len(back.Outcomes) != 6 ||
		back.Outcomes[0].Kind != QEMU || len(back.Outcomes[5].Lost) != 7 {
		t.Errorf("%v: %s", err, text.String())
	}
}

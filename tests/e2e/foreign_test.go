package e2e

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// tcgAssertion is what QEMU 10 writes when an emulated guest with several CPUs meets a race of its own while devices
// get their addresses, or memory and CPUs are plugged: one CPU uses what another has just replaced. QEMU then aborts,
// or the guest stands still before it has written anything. One boot in some dozens does. The assertion of
// tlb_reset_dirty_range_all compares the two ends of one page and was seen once, in TestGrow. dev/test.sh has the same
// pattern, as awk reads it.
var tcgAssertion = regexp.MustCompile(`physmem[.]c:[0-9]+: (iotlb_to_section|tlb_reset_dirty_range_all): Assertion`)

// aborted are lines as QEMU writes them.
var aborted = []string{
	"qemu-system-x86_64: ../../system/physmem.c:678: iotlb_to_section: Assertion `index < d->map.nb' failed.",
	"qemu-system-x86_64: ../../system/physmem.c:901: tlb_reset_dirty_range_all: Assertion `block == b' failed.",
}

// TestOneMark: dev/test.sh runs those tests once more that say what the tests themselves take for QEMU's race.
func TestOneMark(t *testing.T) {
	script, err := os.ReadFile("../../dev/test.sh")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`-v mark='([^']*)'`).FindAllSubmatch(script, -1)
	if len(found) != 1 || string(found[0][1]) != tcgAssertion.String() {
		t.Errorf("dev/test.sh has the marks %q, want one: %s", found, tcgAssertion)
	}
	for _, line := range aborted {
		if !tcgAssertion.MatchString(line) {
			t.Errorf("no mark: %s", line)
		}
	}
}

// TestForeign: dev/foreign.awk names the tests that failed when each of them has the mark, and otherwise none.
func TestForeign(t *testing.T) {
	const passes = "=== RUN   TestA\n    a_test.go:1: fine\n--- PASS: TestA (0.10s)\n"
	failing := func(name, says string) string {
		return "=== RUN   " + name + "\n    b_test.go:1: " + says + "\n--- FAIL: " + name + " (0.10s)\n"
	}
	race, other := failing("TestB", aborted[0]), failing("TestC", "no login")
	const end = "FAIL\nFAIL\tgithub.com/virtkit/virtkit/tests/e2e\t1.0s\nFAIL\n"
	for name, tc := range map[string]struct{ log, want string }{
		"all pass":           {passes + "PASS\n", ""},
		"nothing ran":        {"", ""},
		"the race":           {passes + race + end, "^(TestB)$"},
		"the race, twice":    {race + failing("TestD", aborted[1]) + end, "^(TestB|TestD)$"},
		"the race and other": {race + other + end, ""},
		"another failure":    {passes + other + end, ""},
		"the race in a test that passes, and another failure": {
			"=== RUN   TestA\n    a_test.go:1: " + aborted[0] + "\n--- PASS: TestA (0.10s)\n" + other + end, "",
		},
		"in a test within a test": {
			"=== RUN   TestB\n=== RUN   TestB/one\n    b_test.go:1: " + aborted[0] + "\n" +
				"--- FAIL: TestB (0.20s)\n    --- FAIL: TestB/one (0.10s)\n" + end, "^(TestB)$",
		},
		"beside another test": {
			"=== RUN   TestB\n=== PAUSE TestB\n=== RUN   TestC\n=== PAUSE TestC\n=== CONT  TestB\n" +
				"=== CONT  TestC\n    c_test.go:1: no login\n=== NAME  TestB\n    b_test.go:1: " + aborted[0] + "\n" +
				"--- FAIL: TestB (0.10s)\n--- PASS: TestC (0.10s)\n" + end, "^(TestB)$",
		},
		"the run panicked":   {race + "panic: test timed out after 1h10m0s\n" + end, ""},
		"the end went wrong": {race + "e2e: take the instance down: exit status 1\n" + end, ""},
		"it was killed":      {race + "signal: killed\n" + end, ""},
	} {
		cmd := exec.CommandContext(t.Context(), "awk", "-v", "mark="+tcgAssertion.String(),
			"-f", "../../dev/foreign.awk")
		cmd.Stdin = strings.NewReader(tc.log)
		out, err := cmd.CombinedOutput()
		if got := strings.TrimSuffix(string(out), "\n"); err != nil || got != tc.want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, tc.want)
		}
	}
}

package cli

import "testing"

func TestDisplayName(t *testing.T) {
	for argv0, want := range map[string]string{
		"virtctl": "virtctl", "/usr/bin/virtctl": "virtctl", "virtctl.exe": "virtctl", "other": "virtctl",
		"kubectl-virt": "kubectl virt", "/a/b/kubectl-virt": "kubectl virt", "kubectl-virt.exe": "kubectl virt",
	} {
		if got := DisplayName(argv0); got != want {
			t.Errorf("%s: got %s, want %s", argv0, got, want)
		}
	}
}

func TestExamples(t *testing.T) {
	const text = `
		# virtctl stays in words
		virtctl start demo && virtctl wait demo
		echo x | virtctl console demo
		ssh -o 'ProxyCommand=virtctl port-forward --stdio vmi/demo 22' root@demo
		PASSWORD=x virtctl expect demo f`
	const want = `  # virtctl stays in words
  kubectl virt start demo && kubectl virt wait demo
  echo x | kubectl virt console demo
  ssh -o 'ProxyCommand=kubectl virt port-forward --stdio vmi/demo 22' root@demo
  PASSWORD=x kubectl virt expect demo f`
	if got := Examples("kubectl virt", text); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestParseTarget(t *testing.T) {
	for arg, want := range map[string]Target{
		"demo":                               {Namespace: "ns", Name: "demo"},
		"demo.with.dots":                     {Namespace: "ns", Name: "demo.with.dots"},
		"vm/demo":                            {Namespace: "ns", Name: "demo"},
		"virtualmachine.kubevirt.io/demo":    {Namespace: "ns", Name: "demo"},
		"vmi/demo":                           {Namespace: "ns", Name: "demo", Instance: true},
		"VirtualMachineInstance/demo":        {Namespace: "ns", Name: "demo", Instance: true},
		"vmi/demo/shop":                      {Namespace: "shop", Name: "demo", Instance: true},
		"virtualmachineinstances/demo/other": {Namespace: "other", Name: "demo", Instance: true},
	} {
		got, err := ParseTarget(arg, "ns")
		if err != nil || got != want {
			t.Errorf("%s: got %+v, %v; want %+v", arg, got, err, want)
		}
	}
	for _, arg := range []string{"", "/demo", "vm/", "pod/demo", "vm/a/", "vm/a/b/c"} {
		if _, err := ParseTarget(arg, "ns"); ExitCode(err) != ExitUsage {
			t.Errorf("%q: got %v, want a usage error", arg, err)
		}
	}
}

// A word for a kind that is no machine's is refused before names, and a machine may have it for a name.
func TestParseTargetsRefusesOtherKinds(t *testing.T) {
	for _, args := range [][]string{
		{"pod", "web"},
		{"Pods", "web"},
		{"node", "a", "b"},
		{"secrets", "x"},
		{"vmpool", "x"},
	} {
		if _, err := ParseTargets(args, "ns"); ExitCode(err) != ExitUsage {
			t.Errorf("%q: %v, want a usage error", args, err)
		}
	}
	for _, args := range [][]string{
		{"pod"},
		{"vm/pod", "web"},
		{"web", "pod"},
		{"vm", "pod", "node"},
		{"podium", "web"},
	} {
		if _, err := ParseTargets(args, "ns"); err != nil {
			t.Errorf("%q: %v", args, err)
		}
	}
}

func TestFlagValues(t *testing.T) {
	var seconds Seconds
	for text, want := range map[string]Seconds{"0": 0, "30": 30, "-1": -1, "90s": 90, "1m30s": 90, "1500ms": 2} {
		if err := seconds.Set(text); err != nil || seconds != want {
			t.Errorf("Seconds %q: got %d, %v; want %d", text, seconds, err, want)
		}
	}
	for _, text := range []string{"", "x", "-2", "-5s"} {
		if err := seconds.Set(text); err == nil {
			t.Errorf("Seconds %q is accepted", text)
		}
	}
	minutes := Timeout{Unit: 60e9}
	for text, want := range map[string]string{"5": "5m0s", "90s": "1m30s", "0": "0s"} {
		if err := minutes.Set(text); err != nil || minutes.String() != want {
			t.Errorf("Timeout %q: got %s, %v; want %s", text, minutes.String(), err, want)
		}
	}
	if err := minutes.Set("-1s"); err == nil {
		t.Error("a negative Timeout is accepted")
	}
	signed := Timeout{Unit: 1e9, Signed: true}
	if err := signed.Set("-1"); err != nil || signed.Duration != -1e9 {
		t.Errorf("a signed Timeout: %v, %v", signed.Duration, err)
	}
	var dry DryRun
	for text, want := range map[string]DryRun{
		"none":   DryRunNone,
		"Client": DryRunClient,
		"server": DryRunServer,
		"true":   DryRunServer,
		"false":  DryRunNone,
	} {
		if err := dry.Set(text); err != nil || dry != want {
			t.Errorf("DryRun %q: got %s, %v; want %s", text, dry, err, want)
		}
	}
}

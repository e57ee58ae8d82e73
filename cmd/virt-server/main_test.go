package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// An error begins with the name of the program that met it.
func TestRun(t *testing.T) {
	for name, want := range map[string]string{
		"virt-freezer": "virt-freezer: the guest is away\n", "virt-launcher": "virt-launcher: the guest is away\n",
	} {
		cmd := &cobra.Command{
			Use: name, SilenceUsage: true, SilenceErrors: true,
			RunE: func(*cobra.Command, []string) error { return errors.New("the guest is away") },
		}
		cmd.SetArgs(nil)
		var said strings.Builder
		if code := run(t.Context(), cmd, &said); code != 1 || said.String() != want {
			t.Errorf("%s: %d, %q", name, code, said.String())
		}
	}
	cmd := newCommand()
	cmd.SetArgs([]string{"--unknown"})
	var said strings.Builder
	if code := run(t.Context(), cmd, &said); code != 1 || !strings.HasPrefix(said.String(), cmd.Name()+": ") {
		t.Errorf("%d, %q", code, said.String())
	}
	cmd = &cobra.Command{Use: "virt-server", RunE: func(*cobra.Command, []string) error { return nil }}
	cmd.SetArgs(nil)
	said.Reset()
	if code := run(t.Context(), cmd, &said); code != 0 || said.Len() > 0 {
		t.Errorf("of no error: %d, %q", code, said.String())
	}
}

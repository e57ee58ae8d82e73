package expectcmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/virtkit/virtkit/pkg/client/cli"
	"github.com/virtkit/virtkit/pkg/client/cli/clitest"
)

// What is wrong with the flags, the variables or the script is said before the cluster is asked.
func TestUsage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file("good.exp", "send \"$user\\r\"\n")
	missing := filepath.Join(dir, "missing.exp")
	for line, want := range map[string]string{
		"web":                               "expect needs the name of one VM, and a script or -",
		"web " + good + " --var 1x=a":       `--var: "1x" is not a variable's name`,
		"web " + good + " --var SECRET":     "--var SECRET: there is no such variable in the environment",
		"web " + good + " --var EMPTY":      "--var EMPTY: there is no such variable",
		"web " + good:                       "user",
		"web " + good + " -o nope":          "nope",
		"web " + good + " --tail -1":        "--tail",
		"web " + missing:                    missing + ": there is no such file here",
		"web " + file("bad.exp", "shout\n"): "shout",
		"web -":                             "standard input",
	} {
		_, _, err := clitest.Command{
			New: NewCmdExpect, Stdin: "expect /(/\n", Env: map[string]string{"EMPTY": ""},
		}.Run(t, strings.Fields(line)...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("expect %s: %v; want %q", line, err, want)
		}
	}
}

// A variable has its value from the flag, or, where a secret belongs, from the environment.
func TestVariables(t *testing.T) {
	t.Parallel()
	f := cli.NewFactory("virtctl", cli.NoStreams(), func(name string) string {
		return map[string]string{"PASSWORD": "of the environment"}[name]
	})
	o := &Options{Factory: f, Output: cli.NewOutput(), Vars: []string{"user=root", "PASSWORD", "with=a=b", "none="}}
	if err := o.complete(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"user": "root", "PASSWORD": "of the environment", "with": "a=b", "none": "",
	} {
		if got, given := o.variables[name]; got != want || !given {
			t.Errorf("%s: %q", name, got)
		}
	}
}

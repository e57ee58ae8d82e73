package script

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/virtkit/virtkit/tests/schemas"
)

// envSchemas names the folder of the schemas for the program under test.
const envSchemas = "SCHEMAS"

// exitSchema is the code of a run that printed what its schema does not allow. No verb ends with it.
const exitSchema = 99

func setSchemas(env *testscript.Env) error {
	folder, err := filepath.Abs("../../docs/schemas")
	env.Setenv(envSchemas, folder)
	return err
}

// checked runs the program and holds each report that it prints with -o json or jsonl against its schema. Output goes
// on as it comes; a terminal's is left alone.
func checked(run func() int) int {
	folder, out := os.Getenv(envSchemas), os.Stdout
	if info, err := out.Stat(); folder == "" || err != nil || info.Mode()&os.ModeCharDevice != 0 ||
		!printsJSON(os.Args) {
		return run()
	}
	known, err := schemas.Load(folder)
	if err != nil {
		return broken(err)
	}
	from, to, err := os.Pipe()
	if err != nil {
		return broken(err)
	}
	var seen bytes.Buffer
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.MultiWriter(out, &seen), from)
		ended <- err
	}()
	os.Stdout = to
	code := run()
	if err := to.Close(); err != nil {
		return broken(err)
	}
	if err := <-ended; err != nil {
		return broken(err)
	}
	if _, err := known.Check(seen.Bytes()); err != nil {
		return broken(err)
	}
	return code
}

func printsJSON(args []string) bool {
	for i, arg := range args {
		switch arg {
		case "-ojson", "-ojsonl", "-o=json", "-o=jsonl", "--output=json", "--output=jsonl":
			return true
		case "json", "jsonl":
			if args[i-1] == "-o" || args[i-1] == "--output" {
				return true
			}
		}
	}
	return false
}

func broken(err error) int {
	fmt.Fprintln(os.Stderr, "schema:", err)
	return exitSchema
}

package main

import (
	"bytes"

	"github.com/spf13/cobra"

	"github.com/virtkit/virtkit/pkg/client/cli/completioncmd"
)

// scripts are the file names by which each shell finds a completion.
var scripts = map[string]string{
	"bash":       "completions/virtctl.bash",
	"zsh":        "completions/_virtctl",
	"fish":       "completions/virtctl.fish",
	"powershell": "completions/virtctl.ps1",
}

func completions(cmd *cobra.Command) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, shell := range completioncmd.Shells {
		var b bytes.Buffer
		if err := completioncmd.Write(cmd, shell, &b); err != nil {
			return nil, err
		}
		files[scripts[shell]] = b.Bytes()
	}
	return files, nil
}

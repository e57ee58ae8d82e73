package main

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

const manFolder = "docs/man/"

// undated stands where a man page says when it was written: what is generated depends on the commands alone.
var undated = time.Unix(0, 0).UTC()

// manPages makes a page of section 1 for each command.
func manPages(root *cobra.Command) (map[string][]byte, error) {
	root.DisableAutoGenTag = true
	files := map[string][]byte{}
	var visit func(cmd *cobra.Command) error
	visit = func(cmd *cobra.Command) error {
		for _, sub := range cmd.Commands() {
			if !sub.IsAvailableCommand() || sub.Name() == "help" {
				continue
			}
			if err := visit(sub); err != nil {
				return err
			}
		}
		var page bytes.Buffer
		title := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
		header := &doc.GenManHeader{
			Title: strings.ToUpper(title), Section: "1", Date: &undated, Source: "virtkit",
			Manual: "virtkit",
		}
		if err := doc.GenMan(cmd, header, &page); err != nil {
			return fmt.Errorf("man page of %s: %w", cmd.CommandPath(), err)
		}
		files[manFolder+title+".1"] = bytes.Replace(page.Bytes(), []byte(undated.Format(`"Jan 2006"`)), []byte(`""`), 1)
		return nil
	}
	return files, visit(root)
}

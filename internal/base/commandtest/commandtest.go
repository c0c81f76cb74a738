// Package commandtest documents the commands of a program and runs them with bad values.
//
//	commandtest.go  Document: the page of the commands
//	badvalues.go    BadValues: empty and unreadable arguments
//	conventions.go  Conventions, Completion, JSONErrors: what all programs have in common
//	packaged.go     Packaged: man pages and shell completion files of a package
package commandtest

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// page is the reference of all programs, relative to a test in a directory of cmd.
const page = "../../docs/reference/commands.md"

// Document compares the section of a program in docs/reference/commands.md with the help texts of
// its commands. If write is set, it writes the section.
func Document(t *testing.T, root *cobra.Command, write bool) {
	t.Helper()
	t.Setenv("NODE_NAME", "") // default of a flag
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- begin "+root.Name()+" -->\n", "<!-- end "+root.Name()+" -->\n"
	before, rest, ok := strings.Cut(string(text), begin)
	got, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no section between %q and %q", page, begin, end)
	}
	want, err := section(root)
	if err != nil {
		t.Fatal(err)
	}
	if write {
		if err := os.WriteFile(page, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if got != want {
		t.Errorf("section of %s in %s is stale: run \"make generate\"", root.Name(), page)
	}
}

// section renders the help of a root command and of all commands below it as Markdown.
func section(root *cobra.Command) (string, error) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	var out strings.Builder
	var render func(c *cobra.Command, heading string) error
	render = func(c *cobra.Command, heading string) error {
		var help bytes.Buffer
		c.InitDefaultHelpFlag()
		c.InitDefaultVersionFlag()
		c.SetOut(&help)
		if err := c.Help(); err != nil {
			return fmt.Errorf("help of %s: %w", c.CommandPath(), err)
		}
		fmt.Fprintf(&out, "%s %s\n\n```text\n%s\n```\n\n", heading, c.CommandPath(), strings.TrimSpace(help.String()))
		for _, below := range c.Commands() {
			if !below.IsAvailableCommand() || slices.Contains([]string{"help", "completion"}, below.Name()) {
				continue
			}
			if err := render(below, "###"); err != nil {
				return err
			}
		}
		return nil
	}
	err := render(root, "##")
	return strings.TrimSuffix(out.String(), "\n"), err
}

package commandtest

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestSectionHasEachCommand(t *testing.T) {
	run := func(*cobra.Command, []string) {}
	root := &cobra.Command{Use: "program", Long: "A program."}
	show := &cobra.Command{Use: "show", Short: "Show something", Run: run}
	show.Flags().String("name", "x", "name to show")
	show.AddCommand(&cobra.Command{Use: "all", Short: "Show all", Run: run})
	root.AddCommand(show, &cobra.Command{Use: "secret", Hidden: true, Run: run})
	got, err := section(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"## program\n\n```text\nA program.\n", "### program show\n\n```text\nShow something\n", "### program show all\n",
		"--name string   name to show (default \"x\")", "-h, --help"} {
		if !strings.Contains(got, want) {
			t.Errorf("section does not contain %q:\n%s", want, got)
		}
	}
	for _, unwanted := range []string{"secret", "### program completion", "### program help"} {
		if strings.Contains(got, unwanted) {
			t.Errorf("section contains the unwanted text %q:\n%s", unwanted, got)
		}
	}
}

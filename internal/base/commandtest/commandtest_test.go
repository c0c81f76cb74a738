package commandtest

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
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

func TestPackagedFilesHaveEachCommand(t *testing.T) {
	run := func(*cobra.Command, []string) {}
	root := &cobra.Command{Use: "program", Long: "A program."}
	show := &cobra.Command{Use: "show", Short: "Show something", Run: run}
	show.Flags().String("name", "x", "name to show")
	show.AddCommand(&cobra.Command{Use: "all", Short: "Show all", Run: run})
	root.AddCommand(show, &cobra.Command{Use: "secret", Hidden: true, Run: run})
	got, err := packagedFiles(root)
	if err != nil {
		t.Fatal(err)
	}
	names := slices.Sorted(maps.Keys(got))
	want := []string{"completion/_program", "completion/program.bash", "completion/program.fish",
		"man/program-show-all.1", "man/program-show.1", "man/program.1"}
	if !slices.Equal(names, want) {
		t.Errorf("packaged files = %q, want %q", names, want)
	}
	for name, text := range map[string]string{
		"man/program.1":           ".TH \"PROGRAM\" \"1\" \"\" \"program\" \"\"\n",
		"man/program-show.1":      "\\fB--name\\fP",
		"completion/_program":     "#compdef program\n",
		"completion/program.bash": "-F __start_program program",
		"completion/program.fish": "complete -c program",
	} {
		if !strings.Contains(got[name], text) {
			t.Errorf("packaged file %s does not contain %q:\n%.500s", name, text, got[name])
		}
	}

	dir := t.TempDir()
	Packaged(t, root, dir, true)
	stale := filepath.Join(dir, "man/program-gone.1")
	if err := os.WriteFile(stale, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	Packaged(t, root, dir, true)
	if _, err := os.Stat(stale); err == nil {
		t.Error("the page of a removed command still exists")
	}
	Packaged(t, root, dir, false)
}

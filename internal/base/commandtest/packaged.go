package commandtest

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// Packaged compares the files of a folder with the man pages of a program's commands (man/*.1) and
// its shell completion (completion/). If write is set, it writes them and removes all others.
func Packaged(t *testing.T, root *cobra.Command, folder string, write bool) {
	t.Helper()
	t.Setenv("NODE_NAME", "") // default of a flag
	want, err := packagedFiles(root)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, dir := range []string{"man", "completion"} {
		dir = filepath.Join(folder, dir)
		if write {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			found[filepath.Join(filepath.Base(dir), e.Name())] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		path := filepath.Join(folder, name)
		if write {
			if err := os.WriteFile(path, []byte(want[name]), 0o644); err != nil {
				t.Fatal(err)
			}
		} else if got, err := os.ReadFile(path); err != nil || string(got) != want[name] {
			t.Errorf("%s is stale: run \"make generate\" (%v)", path, err)
		}
		delete(found, name)
	}
	for name := range found {
		path := filepath.Join(folder, name)
		if !write {
			t.Errorf("%s is of no command: run \"make generate\"", path)
		} else if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	}
}

// packagedFiles renders the man pages and the completion of a program, by their paths in the
// folder.
func packagedFiles(root *cobra.Command) (map[string]string, error) {
	out := map[string]string{}
	var pages func(c *cobra.Command) error
	pages = func(c *cobra.Command) error {
		page, err := manPage(c)
		if err != nil {
			return fmt.Errorf("man page of %s: %w", c.CommandPath(), err)
		}
		out["man/"+strings.ReplaceAll(c.CommandPath(), " ", "-")+".1"] = page
		for _, below := range c.Commands() {
			if !below.IsAvailableCommand() || below.IsAdditionalHelpTopicCommand() {
				continue
			}
			if err := pages(below); err != nil {
				return err
			}
		}
		return nil
	}
	if err := pages(root); err != nil {
		return nil, err
	}
	var bash, zsh, fish bytes.Buffer
	if err := root.GenBashCompletionV2(&bash, true); err != nil {
		return nil, fmt.Errorf("completion for bash: %w", err)
	}
	if err := root.GenZshCompletion(&zsh); err != nil {
		return nil, fmt.Errorf("completion for zsh: %w", err)
	}
	if err := root.GenFishCompletion(&fish, true); err != nil {
		return nil, fmt.Errorf("completion for fish: %w", err)
	}
	out["completion/"+root.Name()+".bash"] = bash.String()
	out["completion/_"+root.Name()] = zsh.String()
	out["completion/"+root.Name()+".fish"] = fish.String()
	return out, nil
}

// manPage renders the man page of a command without a date, so that it changes only with the
// command.
func manPage(c *cobra.Command) (string, error) {
	c.DisableAutoGenTag = true // has a date, too
	var page bytes.Buffer
	header := &doc.GenManHeader{Section: "1", Date: &time.Time{}, Source: c.Root().Name()}
	if err := doc.GenMan(c, header, &page); err != nil {
		return "", err
	}
	before, after, ok := strings.Cut(page.String(), time.Time{}.Format(`"Jan 2006"`))
	if !ok {
		return "", fmt.Errorf("date not found in %.200q", page.String())
	}
	return before + `""` + after, nil
}

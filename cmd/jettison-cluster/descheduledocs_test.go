package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"jettison/cluster/deschedule"
)

// example is the example of a strategy in docs/operate/descheduling.md.
type example struct {
	entry  string   // entry of the policy
	args   []string // of the command; nil: the page shows none
	output string   // first lines of the output
}

// examples returns the examples of the page by strategy.
func examples(t *testing.T, page string) map[string]*example {
	out := map[string]*example{}
	for _, section := range strings.Split(page, "\n### ")[1:] {
		section, _, _ = strings.Cut(section, "\n## ")
		name, text, _ := strings.Cut(section, "\n")
		parts := strings.Split(text, "```")
		if len(parts) != 3 && len(parts) != 5 {
			t.Errorf("strategy %s: %d blocks, want the policy's entry, or with the command", name, len(parts)/2)
			continue
		}
		e := &example{entry: strings.TrimPrefix(parts[1], "yaml\n")}
		out[name] = e
		if len(parts) == 3 {
			continue
		}
		var command string
		command, e.output, _ = strings.Cut(strings.TrimPrefix(parts[3], "\n"), "\n")
		words := strings.Fields(command)
		if len(words) < 3 || words[0] != "$" || words[1] != "jettison-cluster" {
			t.Errorf("strategy %s: no jettison-cluster command in %q", name, command)
			continue
		}
		e.args = words[2:]
	}
	return out
}

// Each strategy has an entry on the page, which evicts a pod of the example. A shown output is
// correct, and at least one is shown.
func TestDocsExamples(t *testing.T) {
	page, err := os.ReadFile("../../docs/operate/descheduling.md")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir("../../docs/examples/descheduling")
	files, err := filepath.Glob("*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found, shown := examples(t, string(page)), 0
	for _, name := range deschedule.PluginNames() {
		if name == deschedule.DefaultEvictor {
			continue
		}
		e := found[name]
		if e == nil {
			t.Errorf("strategy %s has no example in the docs", name)
			continue
		}
		delete(found, name)
		file := strings.ToLower(name) + ".yaml"
		files = slices.DeleteFunc(files, func(f string) bool { return f == file })
		policy, err := os.ReadFile(file)
		if err != nil {
			t.Error(err)
			continue
		}
		if e.args != nil {
			shown++
		} else {
			e.args = []string{"deschedule", "--policy", file, "--from", "objects.yaml", "--now", "2026-11-24T00:00:00Z"}
		}
		if !slices.Contains(e.args, file) || !strings.Contains(string(policy), "  "+strings.ReplaceAll(strings.TrimSpace(e.entry), "\n", "\n  ")+"\n") {
			t.Errorf("%s: the page runs %v and shows\n%sof\n%s", name, e.args, e.entry, policy)
		}
		var stdout, stderr bytes.Buffer
		code := execute(t.Context(), e.args, nil, &stdout, &stderr)
		if code != exitOK || stderr.Len() > 0 || !strings.HasPrefix(stdout.String(), e.output) {
			t.Errorf("%s: exit code %d, %s\nthe page shows\n%s\nthe command prints\n%s", name, code, stderr.String(), e.output, stdout.String())
		}
		if lines := strings.Split(stdout.String(), "\n"); len(lines) < 3 || !strings.Contains(lines[2], " "+name+" ") {
			t.Errorf("%s: the example has no eviction by it:\n%s", name, stdout.String())
		}
	}
	if shown == 0 {
		t.Error("the page shows no command with its output")
	}
	if len(found) > 0 || !slices.Equal(files, []string{"objects.yaml"}) {
		t.Errorf("left over: sections %v, files %v, want only objects.yaml", found, files)
	}
}

// The complete policy on the page is the file of the example.
func TestDocsPolicy(t *testing.T) {
	page, err := os.ReadFile("../../docs/operate/descheduling.md")
	if err != nil {
		t.Fatal(err)
	}
	policy, err := os.ReadFile("../../docs/examples/descheduling/podlifetime.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "\n```yaml\n"+string(policy)+"```\n") {
		t.Errorf("the page does not show policy\n%s", policy)
	}
}

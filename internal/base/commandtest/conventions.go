package commandtest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"jettison/internal/base/commandline"
)

// letters has the meaning of each flag letter, which is the same in all commands of all programs.
var letters = map[string]string{"f": "follow", "h": "help", "n": "times", "o": "output",
	"v": "version", "y": "yes"}

// synonyms has the name of a flag that programs use instead of another one.
var synonyms = map[string]string{"wait": "timeout", "limit": "timeout", "deadline": "timeout", "watch": "interval", "every": "interval",
	"period": "interval"}

// changing lists the commands that change a node or a cluster once. They have --dry-run.
var changing = []string{"gc", "restore", "cleanup"}

// choices lists the flags with a fixed set of values, of all programs.
var choices = []string{"output", "log-format", "log-level", "kind", "sort", "trigger", "mode",
	"pressure-taint", "excluded-nodes", "control-plane-nodes"}

// noFiles is the last line of a completion that offers no files.
const noFiles = ":4"

// Completion has a shell complete the values of each flag and the arguments of each command. A flag
// with a fixed set of values offers each of them, which its help names, and only text may be a file.
func Completion(t *testing.T, root *cobra.Command) {
	t.Helper()
	for path, c := range commands(root) {
		if path == "help" || strings.HasPrefix(path, "completion") {
			continue
		}
		if lines := complete(t, root, append(strings.Fields(path), "")); !strings.Contains(c.Use, " ") &&
			lines[len(lines)-1] != noFiles {
			t.Errorf("%s %s: completion of an argument = %q, want no files", root.Name(), path, lines)
		}
		check := func(f *pflag.Flag) {
			if f.NoOptDefVal != "" { // the next word is no value
				return
			}
			lines := complete(t, root, append(strings.Fields(path), "--"+f.Name, ""))
			values, last := lines[:len(lines)-1], lines[len(lines)-1]
			if last != noFiles && !strings.HasPrefix(f.Value.Type(), "string") {
				t.Errorf("%s %s: completion of --%s ends with %q, want no files", root.Name(), path, f.Name, last)
			}
			if (len(values) > 0) != slices.Contains(choices, f.Name) {
				t.Errorf("%s %s: values that complete --%s = %q, want the values of a choice and else none",
					root.Name(), path, f.Name, values)
			}
			for _, value := range values {
				if !strings.Contains(f.Usage+c.Long, value) {
					t.Errorf("%s %s: value %q that completes --%s is not in the help", root.Name(), path, value, f.Name)
				}
			}
		}
		c.Flags().VisitAll(check)
		c.InheritedFlags().VisitAll(check)
	}
}

// complete returns what a program prints to a shell that completes a command line.
func complete(t *testing.T, root *cobra.Command, args []string) []string {
	t.Helper()
	var out bytes.Buffer
	root.SetOut(&out)
	if err := commandline.Execute(t.Context(), root, append([]string{cobra.ShellCompNoDescRequestCmd}, args...)); err != nil {
		t.Fatalf("shell completion of the command line %q failed: %v", args, err)
	}
	if added, _, err := root.Find([]string{cobra.ShellCompRequestCmd}); err == nil {
		root.RemoveCommand(added) // cobra adds it again
	}
	return strings.Split(strings.TrimSpace(out.String()), "\n")
}

// waiting lists the commands that wait for an answer and end. They have --timeout.
var waiting = []string{"admit", "check", "cleanup", "events", "explain", "health", "stats", "status"}

// verbs lists commands that several programs have. No flag of another command replaces them.
var verbs = []string{"status", "explain", "replay", "version"}

// Conventions compares the flags of all commands of a program with those of the other programs. has
// lists the verbs that the program has.
func Conventions(t *testing.T, root *cobra.Command, has ...string) {
	t.Helper()
	for _, verb := range has {
		if c, _, err := root.Find([]string{verb}); err != nil || c == root {
			t.Errorf("%s: the command %s is missing", root.Name(), verb)
		}
	}
	for path, c := range commands(root) {
		c.InitDefaultHelpFlag()
		c.InitDefaultVersionFlag()
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if slices.Contains(verbs, f.Name) && c != root {
				t.Errorf("%s %s: flag --%s, want a command as in other programs", root.Name(), path, f.Name)
			}
			if name, ok := synonyms[f.Name]; ok {
				t.Errorf("%s %s: flag --%s, want --%s as in other commands", root.Name(), path, f.Name, name)
			}
			if f.Shorthand != "" && letters[f.Shorthand] != f.Name {
				t.Errorf("%s %s: -%s is --%s, want --%s as in other commands", root.Name(), path, f.Shorthand,
					f.Name, letters[f.Shorthand])
			}
		})
		if c.Flag("log-format") == nil {
			t.Errorf("%s %s: the flag --log-format is missing", root.Name(), path)
		}
		if c.Flag("follow") != nil {
			ctx, cancel := context.WithTimeout(t.Context(), servingTime)
			err := commandline.Execute(ctx, root, append(strings.Fields(path), "--follow", "--output=json"))
			cancel()
			if commandline.ExitCode(err) != commandline.ExitUsage || !strings.Contains(err.Error(), "jsonl") {
				t.Errorf("%s %s --follow -o json: error = %v, want a usage error that names -o jsonl", root.Name(), path, err)
			}
		}
		if f := c.Flag("timeout"); f == nil && slices.Contains(waiting, path) {
			t.Errorf("%s %s: the flag --timeout is missing", root.Name(), path)
		} else if f != nil && f.DefValue == "0s" {
			t.Errorf("%s %s: the default of --timeout is no limit", root.Name(), path)
		}
		if slices.Contains(changing, path) && c.Flag("dry-run") == nil {
			t.Errorf("%s %s: the flag --dry-run is missing", root.Name(), path)
		}
	}
}

// JSONErrors runs commands that fail with --log-format json. The error must be one line of JSON.
func JSONErrors(t *testing.T, execute func(args []string, stdout, stderr io.Writer) int) {
	t.Helper()
	for _, args := range [][]string{
		{"--no-such-flag"}, {"no-such-command"}, {"version", "now"}, {"version", "--output=xml"}, {"version", "--log-format=xml"},
	} {
		args = append([]string{"--log-format=json"}, args...)
		var stdout, stderr bytes.Buffer
		code := execute(args, &stdout, &stderr)
		var line struct{ Time, Level, Msg, Error string }
		err := json.Unmarshal(stderr.Bytes(), &line)
		if code == 0 || err != nil || line.Level != "ERROR" || line.Time == "" || line.Msg == "" || line.Error == "" {
			t.Errorf("%q: exit code %d, error line is not a JSON log line (%v): %s", args, code, err, stderr.String())
		}
	}
}

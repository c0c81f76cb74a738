package commandtest

import (
	"bytes"
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

// changing lists the commands that change a node or a cluster once. They have --dry-run.
var changing = []string{"gc", "restore", "cleanup"}

// Conventions compares the flags of all commands of a program with those of the other programs.
func Conventions(t *testing.T, root *cobra.Command) {
	t.Helper()
	for path, c := range commands(root) {
		c.InitDefaultHelpFlag()
		c.InitDefaultVersionFlag()
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Shorthand != "" && letters[f.Shorthand] != f.Name {
				t.Errorf("%s %s: -%s is --%s, want --%s as in other commands", root.Name(), path, f.Shorthand,
					f.Name, letters[f.Shorthand])
			}
		})
		if c.Flag("log-format") == nil {
			t.Errorf("%s %s: the flag --log-format is missing", root.Name(), path)
		}
		if c.Flag("follow") != nil {
			err := commandline.Execute(t.Context(), root, append(strings.Fields(path), "--follow", "--output=json"))
			if commandline.ExitCode(err) != commandline.ExitUsage || !strings.Contains(err.Error(), "jsonl") {
				t.Errorf("%s %s --follow -o json: error = %v, want a usage error that names -o jsonl", root.Name(), path, err)
			}
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

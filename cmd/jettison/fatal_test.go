package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Where the log is JSON, what ends the agent is a line of it, at any point of the start; else it is the one line that it always was.
func TestWhatEndsTheAgentIsOfTheLogsFormat(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte("apiVersion: jettison/v1alpha1\nkind: AgentConfiguration\nevictionHrd: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"run", "--config", bad}, exitUsage, "evictionHard"},
		{[]string{"run", "--cgroup-mount", dir}, exitFailed, dir},
		{[]string{"run", "--log-level", "loud"}, exitUsage, "--log-level"},
		{[]string{"run", "--no-such-flag"}, exitUsage, "no-such-flag"},
		{[]string{"run", "here"}, exitUsage, "takes no arguments"},
	} {
		for _, format := range [][]string{nil, {"--log-format", "json"}, {"--log-format=json"}} {
			var stdout, stderr bytes.Buffer
			code := execute(t.Context(), append(c.args, format...), &stdout, &stderr)
			text := stderr.String()
			if code != c.code || strings.Count(text, "\n") != 1 || !strings.Contains(text, c.says) || stdout.Len() > 0 {
				t.Errorf("%v %v: exit code %d, want %d: %s%s", c.args, format, code, c.code, text, stdout.String())
			}
			var line struct{ Time, Level, Msg, Error string }
			switch err := json.Unmarshal(stderr.Bytes(), &line); {
			case format == nil && !strings.HasPrefix(text, "jettison: "):
				t.Errorf("%v: %s", c.args, text)
			case format != nil && (err != nil || line.Level != "ERROR" || line.Time == "" || line.Msg == "" || !strings.Contains(line.Error, c.says)):
				t.Errorf("%v %v: %v: %s", c.args, format, err, text)
			}
		}
	}
}

// So are the lines that the log has to say of itself.
func TestWhatTheLogSaysOfItselfIsOfItsFormat(t *testing.T) {
	var line struct{ Level, Msg string }
	if err := json.Unmarshal(ownLine(true)("7 lines"), &line); err != nil || line.Level != "WARN" || line.Msg != "7 lines" {
		t.Errorf("%+v, %v", line, err)
	}
	if got := string(ownLine(false)("7 lines")); got != "jettison: 7 lines\n" {
		t.Errorf("%q", got)
	}
}

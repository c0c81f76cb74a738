package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A fatal error of the agent is one line in the format of the log, at any point of the start.
func TestFatalErrorHasTheLogsFormat(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte("apiVersion: jettison/v1alpha1\nkind: AgentConfiguration\nevictionHrd: {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		text string
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
			if code != c.code || strings.Count(text, "\n") != 1 || !strings.Contains(text, c.text) || stdout.Len() > 0 {
				t.Errorf("%v %v: exit code %d, want %d with one line about %q: %s%s", c.args, format, code, c.code, c.text, text, stdout.String())
			}
			var line struct{ Time, Level, Msg, Error string }
			switch err := json.Unmarshal(stderr.Bytes(), &line); {
			case format == nil && !strings.HasPrefix(text, "jettison: "):
				t.Errorf("%v: error line = %q, want prefix jettison:", c.args, text)
			case format != nil && (err != nil || line.Level != "ERROR" || line.Time == "" || line.Msg == "" || !strings.Contains(line.Error, c.text)):
				t.Errorf("%v %v: error line is not a JSON log line about %q (%v): %s", c.args, format, c.text, err, text)
			}
		}
	}
}

// Messages of the log pipe have the format of the log, too.
func TestPipeLineHasTheLogsFormat(t *testing.T) {
	var line struct{ Level, Msg string }
	if err := json.Unmarshal(pipeLine(true)("7 lines"), &line); err != nil || line.Level != "WARN" || line.Msg != "7 lines" {
		t.Errorf("JSON line = %+v, error %v, want level WARN, message 7 lines", line, err)
	}
	if got := string(pipeLine(false)("7 lines")); got != "jettison: 7 lines\n" {
		t.Errorf("text line = %q, want jettison: 7 lines", got)
	}
}

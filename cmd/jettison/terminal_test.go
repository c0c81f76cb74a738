package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
)

// A name that a tenant chose cannot add control characters, lines or columns to the output of a command.
func TestNamesAreEscaped(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const name = `a\u001b[2J\u009b2J\u202eb\tc\nd\u007f\f`
	records := write("records", `{"version":1,"id":"20260101T1","pod":{"uid":"u","namespace":"`+name+`","name":"`+name+`","cgroup":"`+name+`","sandboxIds":["`+name+`"]},`+
		`"signal":"memory.available","threshold":"memory.available<100Mi","began":{"monotonicNs":1},"killed":{"monotonicNs":2},`+
		`"crossed":{"monotonicNs":1,"reason":"`+name+`"},"outcome":"back","error":"`+name+`","reason":"`+name+`","message":"`+name+`",`+
		`"steps":[{"name":"kill","monotonicNs":3,"error":"`+name+`"}],"ranking":{"rows":[{"pod":"`+name+`","uid":"u","keys":"`+name+`"}]}}`+"\n")
	config := write("config.yaml", "apiVersion: jettison/v1alpha1\nkind: AgentConfiguration\n")
	frame := write("frames", `{"time":"2026-01-01T00:00:00Z","summary":{"pods":[{"podRef":{"uid":"u","name":"`+name+`","namespace":"`+name+`"}}]}}`+"\n")
	for _, c := range []struct {
		args  []string
		lines int // of stdout and stderr; 0: any
	}{
		{[]string{"records", "--file", records}, 2},
		{[]string{"records", "--file", records, "2026"}, 0},
		{[]string{"records", "--file", records, "-o", "json"}, 1},
		{[]string{"records", "--config", "\x1b[2J\u009b"}, 1},
		{[]string{"replay", "--config", config, frame}, 0},
		{[]string{"gc", "--from", "\x1b[2J\u009b"}, 1},
		{[]string{"\x1b[2J\u009b"}, 1},
	} {
		var stdout, stderr bytes.Buffer
		execute(t.Context(), c.args, &stdout, &stderr)
		all := stdout.String() + stderr.String()
		if at := strings.IndexFunc(all, func(r rune) bool { return r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) }); at >= 0 || all == "" {
			t.Errorf("output of %q is empty or has control characters: %q", c.args, all)
		}
		if n := strings.Count(all, "\n"); c.lines > 0 && n != c.lines {
			t.Errorf("output of %q has %d lines, want %d: %s", c.args, n, c.lines, all)
		}
		for line := range strings.Lines(all) {
			if strings.HasPrefix(line, "d") { // the text after a line end in the name
				t.Errorf("output of %q has a forged line: %q", c.args, line)
			}
		}
	}
}

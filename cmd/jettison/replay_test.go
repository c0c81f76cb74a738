package main

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Bad usage and invalid configurations exit with 2, missing or truncated files with 1; complete frames before the truncation are decided.
func TestReplayExitCodes(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write("good.yaml", []byte("apiVersion: jettison/v1alpha1\nkind: AgentConfiguration\n"))
	bad := write("bad.yaml", []byte("apiVersion: jettison/v1alpha1\nkind: AgentConfiguration\nevictionHrd: {}\n"))
	frame := []byte(`{"time":"2026-01-01T00:00:00Z","summary":null}` + "\n")
	var packed bytes.Buffer
	for range 2 { // in the recorder's format
		w := gzip.NewWriter(&packed)
		_, _ = w.Write(frame)
		_ = w.Close()
	}
	whole := write("whole", packed.Bytes())
	cut := write("cut", packed.Bytes()[:packed.Len()-20])
	empty := write("empty", nil)
	for _, c := range []struct {
		args   []string
		code   int
		lines  int
		stderr string
	}{
		{[]string{"--config", good, whole}, 0, 2, ""},
		{[]string{"--config", good, empty}, 0, 0, ""},
		{[]string{"--config", good, "--diff", good, whole}, 0, 0, "decisions differ in 0 of 2 frames"},
		{[]string{"--config", good, cut}, 1, 1, "line 2: the compressed file ends in the middle of this frame"},
		{[]string{"--config", good, good}, 1, 0, "line 1: not JSON"},
		{[]string{"--config", good, write("magic", []byte("\x1f\x8b"))}, 1, 0, "invalid gzip file"},
		{[]string{"--config", good, filepath.Join(dir, "none")}, 1, 0, "no such file"},
		{[]string{"--config", good, dir}, 1, 0, "is a directory"},
		{[]string{"--config", bad, whole}, 2, 0, `did you mean "evictionHard"?`},
		{[]string{"--config", good, "--diff", bad, whole}, 2, 0, `did you mean "evictionHard"?`},
		{[]string{"--config", good}, 2, 0, "one file of frames"},
		{[]string{"--config", good, whole, whole}, 2, 0, "one file of frames"},
		{[]string{"--cfg", good, whole}, 2, 0, "unknown flag"},
	} {
		var stdout, stderr bytes.Buffer
		code := execute(t.Context(), append([]string{"replay"}, c.args...), &stdout, &stderr)
		if code != c.code || strings.Count(stdout.String(), "\n") != c.lines || !strings.Contains(stderr.String(), c.stderr) || strings.Count(stderr.String(), "\n") > 1 {
			t.Errorf("%v: exit code %d with %d lines and stderr %q, want %d with %d lines and %q", c.args, code, strings.Count(stdout.String(), "\n"),
				stderr.String(), c.code, c.lines, c.stderr)
		}
	}
}

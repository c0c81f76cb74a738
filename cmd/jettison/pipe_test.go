package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Pipes are read like files. Waiting for the writer of a pipe ends with the program.
func TestPipes(t *testing.T) {
	dir := t.TempDir()
	pipe, config := filepath.Join(dir, "pipe"), filepath.Join(dir, "config.yaml")
	const text = "apiVersion: jettison/v1alpha1\nkind: AgentConfiguration\n"
	if err := errors.Join(unix.Mkfifo(pipe, 0o600), os.WriteFile(config, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	in, idle, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(in.Close(), idle.Close()) }()
	stdin := os.Stdin
	os.Stdin = in
	defer func() { os.Stdin = stdin }()

	for _, c := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{"check", "--config", pipe}, exitUsage, "config: read " + pipe + ": "},
		{[]string{"stats", "--config", pipe}, exitUsage, "config: read " + pipe + ": "},
		{[]string{"gc", "--config", pipe}, exitUsage, "config: read " + pipe + ": "},
		{[]string{"snapshot", "-", "--config", pipe}, exitUsage, "config: read " + pipe + ": "},
		{[]string{"records", "--config", pipe}, exitUsage, "config: read " + pipe + ": "},
		{[]string{"run", "--config", pipe}, exitUsage, "config: read " + pipe + ": "},
		{[]string{"replay", "--config", pipe, config}, exitUsage, "config: read " + pipe + ": "},
		{[]string{"replay", "--config", config, "--diff", pipe, config}, exitUsage, "config: read " + pipe + ": "},
		{[]string{"replay", "--config", config, pipe}, exitFailed, "replay: interrupted while reading " + pipe + ": "},
		{[]string{"replay", "--config", config, "-"}, exitFailed, "replay: interrupted while reading -: "},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // as SIGTERM ends it
		var stdout, stderr bytes.Buffer
		ended := make(chan int, 1)
		go func() { ended <- execute(ctx, c.args, &stdout, &stderr) }()
		select {
		case code := <-ended:
			if code != c.code || !strings.Contains(stderr.String(), c.text) || strings.Count(stderr.String(), "\n") != 1 {
				t.Errorf("%v: exit code %d, want %d with %q: %s", c.args, code, c.code, c.text, stderr.String())
			}
		case <-time.After(20 * time.Second):
			t.Errorf("%v did not end within 20 s", c.args)
		}
		cancel()
	}

	for _, c := range []struct {
		args    []string
		written string
		lines   int
	}{
		{[]string{"replay", "--config", pipe, os.DevNull}, text, 0},
		{[]string{"replay", "--config", config, pipe}, `{"time":"2026-01-01T00:00:00Z","summary":null}` + "\n", 1},
	} {
		written := make(chan error, 1)
		go func() {
			w, err := os.OpenFile(pipe, os.O_WRONLY, 0)
			if err == nil {
				_, err = w.WriteString(c.written)
				err = errors.Join(err, w.Close())
			}
			written <- err
		}()
		var stdout, stderr bytes.Buffer
		code := execute(t.Context(), c.args, &stdout, &stderr)
		if err := <-written; err != nil || code != exitOK || strings.Count(stdout.String(), "\n") != c.lines {
			t.Errorf("%v: exit code %d with %d lines, want 0 with %d: %s, %v", c.args, code, strings.Count(stdout.String(), "\n"), c.lines, stderr.String(), err)
		}
	}
}

package main

import (
	"flag"
	"io"
	"strings"
	"testing"

	"jettison/internal/base/commandtest"
	"jettison/internal/base/terminal"
)

var generate = flag.Bool("generate", false, "write the section of this program in docs/reference/commands.md")

func TestTheCommandPageIsFresh(t *testing.T) {
	commandtest.Document(t, command(strings.NewReader(""), terminal.New(io.Discard, true), io.Discard), *generate)
}

// All programs name commands and flags alike, and complete their values.
func TestCommandsFollowTheConventions(t *testing.T) {
	commandtest.Conventions(t, command(strings.NewReader(""), terminal.New(io.Discard, true), io.Discard),
		"status", "explain", "replay", "version")
	commandtest.Completion(t, command(strings.NewReader(""), terminal.New(io.Discard, true), io.Discard))
	commandtest.JSONErrors(t, func(args []string, stdout, stderr io.Writer) int {
		return execute(t.Context(), args, strings.NewReader(""), stdout, stderr)
	})
}

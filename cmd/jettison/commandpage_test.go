package main

import (
	"flag"
	"io"
	"testing"

	"jettison/internal/base/commandtest"
	"jettison/internal/base/terminal"
)

var generate = flag.Bool("generate", false, "write the section of this program in docs/reference/commands.md")

func TestTheCommandPageIsFresh(t *testing.T) {
	commandtest.Document(t, command(terminal.New(io.Discard, true), io.Discard), *generate)
}

// All programs have the same flag letters and --log-format, and a version command.
func TestCommandsFollowTheConventions(t *testing.T) {
	commandtest.Conventions(t, command(terminal.New(io.Discard, true), io.Discard))
	commandtest.Completion(t, command(terminal.New(io.Discard, true), io.Discard))
	commandtest.JSONErrors(t, func(args []string, stdout, stderr io.Writer) int { return execute(t.Context(), args, stdout, stderr) })
}

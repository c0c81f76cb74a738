package main

import (
	"flag"
	"io"
	"testing"

	"jettison/internal/base/commandtest"
)

var generate = flag.Bool("generate", false, "write the section of this program in docs/reference/commands.md")

func TestTheCommandPageIsFresh(t *testing.T) {
	commandtest.Document(t, command(io.Discard, io.Discard), *generate)
}

// All programs have the same flag letters and --log-format, and a version command.
func TestCommandsFollowTheConventions(t *testing.T) {
	commandtest.Conventions(t, command(io.Discard, io.Discard))
	commandtest.Completion(t, command(io.Discard, io.Discard))
	commandtest.JSONErrors(t, func(args []string, stdout, stderr io.Writer) int { return execute(t.Context(), args, stdout, stderr) })
}

package main

import (
	"flag"
	"io"
	"testing"

	"jettison/internal/base/commandtest"
	"jettison/internal/base/terminal"
)

var generate = flag.Bool("generate", false, "write the section of this program in docs/reference/commands.md, its man pages and its completion")

func TestTheCommandPageIsFresh(t *testing.T) {
	commandtest.Document(t, command(terminal.New(io.Discard, true), io.Discard), *generate)
}

// The Debian package has these files.
func TestThePackagedFilesAreFresh(t *testing.T) {
	commandtest.Packaged(t, command(terminal.New(io.Discard, true), io.Discard), "../../deploy/package", *generate)
}

// All programs name commands and flags alike, and complete their values.
func TestCommandsFollowTheConventions(t *testing.T) {
	commandtest.Conventions(t, command(terminal.New(io.Discard, true), io.Discard),
		"status", "explain", "replay", "version")
	commandtest.Completion(t, command(terminal.New(io.Discard, true), io.Discard))
	commandtest.JSONErrors(t, func(args []string, stdout, stderr io.Writer) int { return execute(t.Context(), args, stdout, stderr) })
}

package main

import (
	"flag"
	"io"
	"testing"

	"github.com/spf13/cobra"

	"jettison/internal/base/commandtest"
	"jettison/internal/base/terminal"
	"jettison/internal/kubectl/onnode"
)

var generate = flag.Bool("generate", false, "write the section of this program in docs/reference/commands.md")

func root() *cobra.Command {
	return command(terminal.New(io.Discard, true), io.Discard, onnode.Streams{})
}

// The flags are those of kubectl, so that the conventions of the other programs do not hold.
func TestTheCommandPageIsFresh(t *testing.T) {
	commandtest.Document(t, root(), *generate)
}

func TestCompletion(t *testing.T) { commandtest.Completion(t, root()) }

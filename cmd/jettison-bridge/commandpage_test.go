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

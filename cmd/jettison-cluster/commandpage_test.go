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

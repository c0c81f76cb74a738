package terminal

import (
	"bytes"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// Colours are put around texts that were made safe, and only on a terminal.
func TestStyles(t *testing.T) {
	line := Line{{Text: "a\x1b[2J\n", Style: Bad}, {Text: " b "}}
	var out bytes.Buffer
	if err := New(&out, false).Print(line); err != nil || out.String() != `a\u001b[2J\u000a b`+"\n" {
		t.Errorf("%v, %q", err, out.String())
	}
	out.Reset()
	if err := (&Screen{raw: &out, colour: true}).Print(line); err != nil || out.String() != "\x1b[31m"+`a\u001b[2J\u000a`+"\x1b[0m b\n" {
		t.Errorf("%v, %q", err, out.String())
	}
}

// Keys that a terminal sends at once are told apart, and arrows have names.
func TestSplit(t *testing.T) {
	got := split([]byte("s\x1b[C\x1bODq\x1b[Zx"))
	if want := []string{"s", "right", "left", "q", "x"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// On a terminal there is a width, keys are read without their line's end, and it is as it was afterwards.
func TestATerminal(t *testing.T) {
	main, name := pty(t)
	screen := New(name, true)
	if !screen.Terminal() || screen.colour {
		t.Error("no terminal, or colours that nobody wants")
	}
	if err := unix.IoctlSetWinsize(int(name.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 4, Col: 91}); err != nil {
		t.Fatal(err)
	}
	if screen.Width() != 91 || screen.Height() != 4 {
		t.Errorf("%d x %d", screen.Width(), screen.Height())
	}
	before, err := unix.IoctlGetTermios(int(name.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := Read(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := main.WriteString("sq"); err != nil {
		t.Fatal(err)
	}
	if a, b := <-keys.C, <-keys.C; a != "s" || b != "q" {
		t.Errorf("%q %q", a, b)
	}
	if err := keys.Close(); err != nil {
		t.Fatal(err)
	}
	after, err := unix.IoctlGetTermios(int(name.Fd()), unix.TCGETS)
	if err != nil || *after != *before {
		t.Errorf("%v: it was changed", err)
	}
}

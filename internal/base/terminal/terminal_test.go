package terminal

import (
	"bytes"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// Colours are added after texts are made safe, and only on a terminal.
func TestStyles(t *testing.T) {
	line := Line{{Text: "a\x1b[2J\n", Style: Bad}, {Text: " b "}}
	var out bytes.Buffer
	if err := New(&out, false).Print(line); err != nil || out.String() != `a\u001b[2J\u000a b`+"\n" {
		t.Errorf("Print to a file: error %v, output %q", err, out.String())
	}
	out.Reset()
	if err := (&Screen{raw: &out, colour: true}).Print(line); err != nil || out.String() != "\x1b[31m"+`a\u001b[2J\u000a`+"\x1b[0m b\n" {
		t.Errorf("Print with colours: error %v, output %q", err, out.String())
	}
}

// Keys in one read are separated, and arrow keys have names.
func TestSplit(t *testing.T) {
	got := split([]byte("s\x1b[C\x1bODq\x1b[Zx"))
	if want := []string{"s", "right", "left", "q", "x"}; !slices.Equal(got, want) {
		t.Errorf("keys = %q, want %q", got, want)
	}
}

// A terminal has a size, keys are read without a line end, and its mode is restored.
func TestTerminal(t *testing.T) {
	main, name := pty(t)
	screen := New(name, true)
	if !screen.Terminal() || screen.colour {
		t.Error("screen is not a terminal, or has unwanted colours")
	}
	if err := unix.IoctlSetWinsize(int(name.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 4, Col: 91}); err != nil {
		t.Fatal(err)
	}
	if screen.Width() != 91 || screen.Height() != 4 {
		t.Errorf("size of the terminal = %d x %d, want 91 x 4", screen.Width(), screen.Height())
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
		t.Errorf("keys = %q %q, want s and q", a, b)
	}
	if err := keys.Close(); err != nil {
		t.Fatal(err)
	}
	after, err := unix.IoctlGetTermios(int(name.Fd()), unix.TCGETS)
	if err != nil || *after != *before {
		t.Errorf("terminal mode not restored, error %v", err)
	}
}

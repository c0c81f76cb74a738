// Package terminal is what a command writes its answer to: a terminal, which has a width and
// colours, or a file, which has neither. Whatever is written is made safe for terminals on the way
// (internal/base/printable); colours are put around it after that.
//
//	terminal.go  Screen
//	keys.go      Keys: what is typed, key by key
package terminal

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"jettison/internal/base/printable"
)

// Style is how a text looks on a terminal with colours.
type Style string

// The styles, as parameters of SGR (ECMA-48).
const (
	Plain Style = ""
	Bold  Style = "1"
	Dim   Style = "2"
	Bad   Style = "31" // red
	Good  Style = "32" // green
	Doubt Style = "33" // yellow
)

// Span is a piece of a line. A tab or the end of a line in it is shown as an escape.
type Span struct {
	Text  string
	Style Style
}

// Line is one line. Its spans follow each other without a space.
type Line []Span

// Text is a line in one style.
func Text(style Style, format string, args ...any) Line {
	return Line{{Text: fmt.Sprintf(format, args...), Style: style}}
}

// Screen is where a command writes. It is for one goroutine.
type Screen struct {
	raw    io.Writer
	safe   io.Writer
	file   *os.File // nil: it is no terminal
	colour bool
	width  int // that tests set; 0: the terminal's own
}

// New makes a Screen of an output. noColour: the user wants none (https://no-color.org).
func New(out io.Writer, noColour bool) *Screen {
	s := &Screen{raw: out, safe: printable.Writer(out)}
	if f, ok := out.(*os.File); ok && Is(f) {
		s.file, s.colour = f, !noColour && os.Getenv("TERM") != "dumb"
	}
	return s
}

// Is tells whether a file is a terminal.
func Is(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// Fixed makes a Screen without colours that is so wide, whatever it is.
func Fixed(out io.Writer, width int) *Screen {
	return &Screen{raw: out, safe: printable.Writer(out), width: width}
}

// Terminal tells whether a person looks at it.
func (s *Screen) Terminal() bool { return s.file != nil }

// Width is how many columns it has; 0: any number.
func (s *Screen) Width() int {
	width, _ := s.size()
	return width
}

// Height is how many lines it has; 0: any number.
func (s *Screen) Height() int {
	_, height := s.size()
	return height
}

func (s *Screen) size() (width, height int) {
	if s.file == nil {
		return s.width, 0
	}
	width, height, err := term.GetSize(int(s.file.Fd()))
	if err != nil {
		return 0, 0
	}
	return width, height
}

// Raw is the output itself, for what is no text.
func (s *Screen) Raw() io.Writer { return s.raw }

// Write writes text, made safe.
func (s *Screen) Write(b []byte) (int, error) { return s.safe.Write(b) }

// Print writes lines.
func (s *Screen) Print(lines ...Line) error {
	var b bytes.Buffer
	for _, l := range lines {
		s.add(&b, l)
		b.WriteByte('\n')
	}
	_, err := s.raw.Write(b.Bytes())
	return err
}

// Repaint writes lines over those that the terminal shows, as many as it has room for.
func (s *Screen) Repaint(lines []Line) error {
	if most := s.Height() - 1; most > 0 && len(lines) > most {
		lines = lines[:most]
	}
	var b bytes.Buffer
	b.WriteString("\x1b[H") // to the first line
	for _, l := range lines {
		s.add(&b, l)
		b.WriteString("\x1b[K\r\n") // and nothing after it
	}
	b.WriteString("\x1b[J") // nor below
	_, err := s.raw.Write(b.Bytes())
	return err
}

func (s *Screen) add(b *bytes.Buffer, l Line) {
	var line strings.Builder
	for i, span := range l {
		text := printable.Text(span.Text)
		if i == len(l)-1 {
			text = strings.TrimRight(text, " ")
		}
		if s.colour && span.Style != Plain && strings.TrimSpace(text) != "" {
			text = "\x1b[" + string(span.Style) + "m" + text + "\x1b[0m"
		}
		line.WriteString(text)
	}
	b.WriteString(line.String())
}

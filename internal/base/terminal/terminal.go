// Package terminal writes the output of a command to a terminal, which has a width and colours, or
// to a file, which has neither. All text is made safe for terminals (internal/base/printable)
// before colours are added.
//
//	terminal.go  Screen: the output
//	keys.go      Keys: typed keys
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

// Style is the style of a text on a terminal with colours.
type Style string

// The styles, as parameters of SGR (ECMA-48).
const (
	Plain   Style = ""
	Bold    Style = "1"
	Dim     Style = "2"
	Bad     Style = "31" // red
	Good    Style = "32" // green
	Warning Style = "33" // yellow
)

// Span is a part of a line. Tabs and line ends in it are shown as escapes.
type Span struct {
	Text  string
	Style Style
}

// Line is one line of spans without separators.
type Line []Span

// Text returns a line in one style.
func Text(style Style, format string, args ...any) Line {
	return Line{{Text: fmt.Sprintf(format, args...), Style: style}}
}

// Screen is the output of a command. It is for one goroutine.
type Screen struct {
	raw    io.Writer
	safe   io.Writer
	file   *os.File // nil: not a terminal
	colour bool
	width  int // set by tests; 0: the terminal's
}

// New returns a Screen for an output. noColour: the user wants no colours (https://no-color.org).
func New(out io.Writer, noColour bool) *Screen {
	s := &Screen{raw: out, safe: printable.Writer(out)}
	if f, ok := out.(*os.File); ok && Is(f) {
		s.file, s.colour = f, !noColour && os.Getenv("TERM") != "dumb"
	}
	return s
}

// Is reports whether a file is a terminal.
func Is(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// Fixed returns a Screen without colours, with a fixed width.
func Fixed(out io.Writer, width int) *Screen {
	return &Screen{raw: out, safe: printable.Writer(out), width: width}
}

// Terminal reports whether the output is a terminal.
func (s *Screen) Terminal() bool { return s.file != nil }

// Width returns the number of columns; 0: unlimited.
func (s *Screen) Width() int {
	width, _ := s.size()
	return width
}

// Height returns the number of lines; 0: unlimited.
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

// Raw returns the output without escaping, for data.
func (s *Screen) Raw() io.Writer { return s.raw }

// Write writes text with escapes for control characters.
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

// Repaint writes lines over the current ones, as many as fit on the terminal.
func (s *Screen) Repaint(lines []Line) error {
	if limit := s.Height() - 1; limit > 0 && len(lines) > limit {
		lines = lines[:limit]
	}
	var b bytes.Buffer
	b.WriteString("\x1b[H") // move to the first line
	for _, l := range lines {
		s.add(&b, l)
		b.WriteString("\x1b[K\r\n") // clear the rest of the line
	}
	b.WriteString("\x1b[J") // clear the lines below
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

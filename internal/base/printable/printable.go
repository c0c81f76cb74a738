// Package printable makes text from outside safe to print. Tenants choose the names of cgroups
// below their containers, and errors may contain these names. Terminals interpret control
// characters: they move the cursor, hide lines and set the title.
package printable

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text replaces characters that a terminal interprets by JSON escapes such as \u001b: all controls,
// also those of Unicode (U+009B begins a sequence like ESC [), line ends, tabs, and marks that
// change the direction of writing. A byte that is not UTF-8 becomes \x9b. Other text is unchanged.
func Text(text string) string {
	if !strings.ContainsFunc(text, isControl) {
		return text
	}
	return string(appendEscaped(nil, text, isControl))
}

// isControl reports whether a terminal interprets a rune instead of printing it.
func isControl(r rune) bool {
	return r < ' ' || r == utf8.RuneError || r > '~' &&
		(unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029')
}

// isControlInOutput is isControl without line ends and tabs, which lay out an output.
func isControlInOutput(r rune) bool { return r != '\n' && r != '\t' && isControl(r) }

func appendEscaped(b []byte, text string, escape func(rune) bool) []byte {
	for text != "" {
		r, n := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && n == 1:
			b = fmt.Appendf(b, `\x%02x`, text[0])
		case r == utf8.RuneError || !escape(r): // a written U+FFFD is harmless
			b = append(b, text[:n]...)
		case r > 0xffff: // a surrogate pair, as in JSON
			r -= 0x10000
			b = fmt.Appendf(b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
		text = text[n:]
	}
	return b
}

// Writer returns a writer that escapes like Text, except line ends and tabs. JSON keeps its
// meaning: such characters occur in its strings only, where an escape means the same. A rune must
// not be split over two calls of Write.
func Writer(to io.Writer) io.Writer { return writer{to} }

type writer struct{ to io.Writer }

// Write writes all of b, or fails.
func (w writer) Write(b []byte) (int, error) {
	for i, c := range b {
		if c != '\n' && c != '\t' && (c < ' ' || c > '~') {
			safe := appendEscaped(append(make([]byte, 0, len(b)+64), b[:i]...), string(b[i:]), isControlInOutput)
			if _, err := w.to.Write(safe); err != nil {
				return 0, err
			}
			return len(b), nil
		}
	}
	return w.to.Write(b)
}

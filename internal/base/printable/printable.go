// Package printable makes text from outside safe to print. Names of cgroups are a tenant's, who may
// make some below his container's; so may be errors that hold them. A terminal obeys control
// characters: they move its cursor, hide lines and set its title.
package printable

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text is a text with what a terminal would obey, and not just print, as an escape of JSON's:
// \u001b. That is all controls, those of Unicode too (U+009B begins a sequence as ESC [ does), line
// ends, tabs, and the marks that turn the direction of writing. A byte that is no UTF-8 is \x9b.
// What is all right comes back as it is.
func Text(text string) string {
	if !strings.ContainsFunc(text, obeyed) {
		return text
	}
	return string(appendEscaped(nil, text, obeyed))
}

// obeyed reports whether a rune is not just printed.
func obeyed(r rune) bool {
	return r < ' ' || r == utf8.RuneError || r > '~' &&
		(unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029')
}

// inOutput is obeyed, but for the two that an output is laid out with.
func inOutput(r rune) bool { return r != '\n' && r != '\t' && obeyed(r) }

func appendEscaped(b []byte, text string, escape func(rune) bool) []byte {
	for text != "" {
		r, n := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && n == 1:
			b = fmt.Appendf(b, `\x%02x`, text[0])
		case r == utf8.RuneError || !escape(r): // one that was written as such is harmless
			b = append(b, text[:n]...)
		case r > 0xffff: // a pair, as JSON has it
			r -= 0x10000
			b = fmt.Appendf(b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
		text = text[n:]
	}
	return b
}

// Writer escapes what is written through it as Text does, but for line ends and tabs. JSON stays
// the JSON that it was: there such characters are in strings only, where the escape means the same.
// A rune must not be cut over two calls of Write.
func Writer(to io.Writer) io.Writer { return writer{to} }

type writer struct{ to io.Writer }

// Write writes all of b, or fails.
func (w writer) Write(b []byte) (int, error) {
	for i, c := range b {
		if c != '\n' && c != '\t' && (c < ' ' || c > '~') {
			safe := appendEscaped(append(make([]byte, 0, len(b)+64), b[:i]...), string(b[i:]), inOutput)
			if _, err := w.to.Write(safe); err != nil {
				return 0, err
			}
			return len(b), nil
		}
	}
	return w.to.Write(b)
}

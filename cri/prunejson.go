package cri

import (
	"bytes"
	"reflect"
	"strings"
)

// member selects the parts of a JSON value to decode.
type member struct {
	// needed members of an object; nil: the whole value, if it is not longer than maxText
	members map[string]*member
}

// memberOf returns the parts of a JSON text that json.Unmarshal decodes into a type.
func memberOf(t reflect.Type) *member {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	m := &member{}
	if t.Kind() == reflect.Struct {
		m.members = map[string]*member{}
		for f := range t.Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			m.members[name] = memberOf(f.Type)
		}
	}
	return m
}

// json appends the needed parts of a JSON text of n bytes. For invalid JSON the appended text is
// invalid too.
func (p *pruner) json(n int, of *member, out []byte) []byte {
	j := jsonPruner{pruner: p, end: p.at + n}
	if text, ok := j.value(of, out); ok {
		out = text
	}
	if j.peek() != 0 { // several values, or an invalid one
		out = append(out, '!')
	}
	p.skip(j.end - p.at)
	return out
}

// jsonPruner reads one JSON value.
type jsonPruner struct {
	*pruner
	end int // end of the text
}

// rest returns the remaining text within cur; empty: the text has ended.
func (j *jsonPruner) rest() []byte {
	if j.at >= j.end || !j.fill() {
		return nil
	}
	return j.cur[:min(len(j.cur), j.end-j.at)]
}

// peek returns the next byte that is not a space; 0: the text has ended. JSON contains no byte 0.
func (j *jsonPruner) peek() byte {
	for {
		b := j.rest()
		if len(b) == 0 {
			return 0
		}
		if c := b[0]; c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return c
		}
		j.step(1)
	}
}

// value appends the needed parts of the next value. It returns false if it appended nothing,
// because the value is too long.
func (j *jsonPruner) value(of *member, out []byte) ([]byte, bool) {
	if j.peek() != '{' || of.members == nil {
		return j.whole(out, maxText)
	}
	j.step(1)
	out = append(out, '{')
	var name [64]byte
	for first := true; ; {
		if c := j.peek(); c != '"' {
			if c != 0 {
				j.step(1)
				if c == ',' && !first {
					continue
				}
				out = append(out, c) // the end, or an invalid character
			}
			return out, true
		}
		key, short := j.whole(name[:0], len(name))
		if j.peek() != ':' {
			return append(out, '!'), true
		}
		j.step(1)
		inner := of.members[string(bytes.Trim(key, `"`))]
		if !short || inner == nil {
			_, _ = j.whole(nil, 0)
			first = false
			continue
		}
		from := len(out)
		if out[from-1] != '{' {
			out = append(out, ',')
		}
		out = append(append(out, key...), ':')
		var ok bool
		if out, ok = j.value(inner, out); !ok {
			out = out[:from]
		}
		first = false
	}
}

// whole appends the next value unchanged. It returns false if it appended nothing, because the
// value is longer than limit.
func (j *jsonPruner) whole(out []byte, limit int) ([]byte, bool) {
	from, fits := len(out), true
	j.peek()
	j.scan(func(b []byte) {
		if fits = fits && len(out)-from+len(b) <= limit; fits {
			out = append(out, b...)
		}
		j.step(len(b))
	})
	if !fits {
		return out[:from], false
	}
	return out, true
}

// scan reads the next value part by part. keep must advance past each part.
func (j *jsonPruner) scan(keep func([]byte)) {
	depth := 0
	for b := j.rest(); len(b) > 0; b = j.rest() {
		switch c := b[0]; c {
		case '"':
			j.text(keep)
		case '{', '[':
			depth++
			keep(b[:1])
		case '}', ']', ',', ':':
			if depth == 0 { // of the enclosing value
				return
			}
			if keep(b[:1]); c == '}' || c == ']' {
				depth--
			}
		default: // a number, a word, a part of either that continues in the next chunk, or a space
			n := bytes.IndexAny(b, "\"{}[],: \n\t\r")
			if n < 0 {
				keep(b)
				continue
			}
			keep(b[:max(1, n)])
		}
		if depth == 0 {
			return
		}
	}
}

// text reads a string.
func (j *jsonPruner) text(keep func([]byte)) {
	keep(j.rest()[:1])
	for escaped := false; ; {
		b := j.rest()
		switch {
		case len(b) == 0:
			return
		case escaped:
			keep(b[:1])
			escaped = false
			continue
		}
		n := 0
		for n < len(b) && b[n] != '"' && b[n] != '\\' {
			n++
		}
		if n == len(b) {
			keep(b)
			continue
		}
		escaped = b[n] == '\\'
		if keep(b[:n+1]); !escaped {
			return
		}
	}
}

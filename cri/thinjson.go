package cri

import (
	"bytes"
	"reflect"
	"strings"
)

// member is what is taken of a JSON value.
type member struct {
	// of an object; nil: the value is taken whole, if it is no longer than maxText
	members map[string]*member
}

// memberOf is what a type takes of the text that is decoded into it.
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

// json appends what is taken of JSON of n bytes. Of what is no JSON it leaves something that is
// none either.
func (p *pruner) json(n int, of *member, out []byte) []byte {
	j := jsonPruner{pruner: p, end: p.at + n}
	if text, ok := j.value(of, out); ok {
		out = text
	}
	if j.peek() != 0 { // more than one value, or one that is none
		out = append(out, '!')
	}
	p.skip(j.end - p.at)
	return out
}

// jsonPruner reads one JSON value.
type jsonPruner struct {
	*pruner
	end int // where the text ends
}

// rest is what lies in cur of the text; none: it is over.
func (j *jsonPruner) rest() []byte {
	if j.at >= j.end || !j.more() {
		return nil
	}
	return j.cur[:min(len(j.cur), j.end-j.at)]
}

// peek is the next byte that is no space; 0: the text is over, for JSON has no such byte.
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

// value appends what is taken of the next value. false: nothing is, for it is too long.
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
				out = append(out, c) // the end, or what should not be there
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

// whole appends the next value as it stands. false: it is longer than limit, and nothing was
// appended.
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

// scan goes through the next value, part by part; keep has to step over each.
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
			if depth == 0 { // of what is around it
				return
			}
			if keep(b[:1]); c == '}' || c == ']' {
				depth--
			}
		default: // a number, a word, a part of one that goes on in the next chunk, or a space
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

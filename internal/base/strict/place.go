package strict

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// MaxKey bounds the bytes of a key in a message: keys come from outside.
const MaxKey = 64

// Field formats a JSON pointer like summary.pods[3].memory.rssBytes. A long or unusual key is
// shortened and quoted.
func Field(p jsontext.Pointer) string {
	var b strings.Builder
	for token := range p.Tokens() {
		if _, err := strconv.ParseUint(token, 10, 32); err == nil {
			b.WriteString("[" + token + "]")
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		if len(token) > MaxKey || strings.ContainsFunc(token, func(r rune) bool {
			return r <= ' ' || r == '"' || r == '.' || r > '~'
		}) {
			token = fmt.Sprintf("%.*q", MaxKey, token)
		}
		b.WriteString(token)
	}
	return b.String()
}

// Kind describes a kind of JSON value.
func Kind(k jsontext.Kind) string {
	switch k {
	case 'n':
		return "null"
	case 't', 'f':
		return "true or false"
	case '"':
		return "text"
	case '0':
		return "a number"
	case '{', '}':
		return "an object"
	case '[', ']':
		return "a list"
	}
	return "another kind"
}

package spec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"jettison/internal/base/strict"
)

// MaxFile bounds the bytes of a manifest, as in the kubelet (pkg/kubelet/config/common.go).
const MaxFile = 10 << 20

const (
	// maxValues bounds the values of a document. The YAML library makes a node of 160 bytes and more
	// from two characters, before anything can be checked.
	maxValues = 50_000
	// startsValue are the characters that may begin a value of YAML.
	startsValue = ",:-?[{"
	// maxDepth bounds the nesting of JSON. The fields of a pod are a dozen levels deep.
	maxDepth = 100
)

// documents calls do for each document that has content, until do reports false or the syntax is
// wrong.
func documents(text []byte, do func(*yaml.Node) bool) *strict.FieldError {
	text, err := decodeUTF8(text)
	if err != nil {
		return err
	}
	if isJSON(text) {
		return jsonDocument(text, do)
	}
	if line := tooManyValues(text); line > 0 {
		return fieldError(line, "document with more than about %d values: split it into several",
			maxValues)
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	for count := 0; ; count++ {
		var n yaml.Node
		switch err := d.Decode(&n); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return notYAML(err)
		}
		if count == maxObjects {
			return fieldError(n.Line, "%w", errTooMany)
		}
		if len(n.Content) == 1 && !isNull(n.Content[0]) && !do(n.Content[0]) {
			return nil
		}
	}
}

func fieldError(line int, format string, args ...any) *strict.FieldError {
	return &strict.FieldError{Line: line, Err: fmt.Errorf(format, args...)}
}

// decodeUTF8 returns a text without its byte order mark. It rejects other encodings and large
// texts.
func decodeUTF8(text []byte) ([]byte, *strict.FieldError) {
	switch {
	case len(text) > MaxFile:
		return nil, fieldError(0, "larger than %dMi: use several files", MaxFile>>20)
	case bytes.HasPrefix(text, []byte("\xff\xfe")) || bytes.HasPrefix(text, []byte("\xfe\xff")):
		return nil, fieldError(1, "UTF-16 text: save the file as UTF-8")
	}
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	if i := bytes.IndexByte(text, 0); i >= 0 {
		return nil, fieldError(lineAt(text, i), "NUL byte: want UTF-8 text")
	}
	if utf8.Valid(text) {
		return text, nil
	}
	for i := 0; ; {
		r, size := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && size <= 1 {
			return nil, fieldError(lineAt(text, i), "byte 0x%02x: want UTF-8 text", text[i])
		}
		i += size
	}
}

// lineAt returns the line of an offset, from 1.
func lineAt(text []byte, offset int) int { return 1 + bytes.Count(text[:offset], []byte("\n")) }

// isJSON reports whether a text is one JSON object. JSON has escapes that the YAML library does not
// know: \/ and those of two UTF-16 surrogates.
func isJSON(text []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) && json.Valid(text)
}

// tooManyValues returns the line on which a document exceeds the limit; 0: none does. It counts the
// characters that may begin a value, but not those of block scalars, such as the files of a
// ConfigMap.
func tooManyValues(text []byte) int {
	number, count := 0, 0
	flow := 0   // open brackets
	block := -1 // column that the lines of a block scalar exceed; -1: no block scalar
	for line := range bytes.Lines(text) {
		number++
		indent := len(line) - len(bytes.TrimLeft(line, " "))
		switch {
		case len(bytes.TrimSpace(line)) == 0:
			continue
		case block >= 0 && indent > block:
			continue
		case bytes.HasPrefix(line, []byte("---")):
			count, flow = 0, 0
		}
		block = -1
		count++
		for _, c := range line {
			if strings.IndexByte(startsValue, c) >= 0 {
				count++
			}
			switch c {
			case '[', '{':
				flow++
			case ']', '}':
				flow = max(0, flow-1)
			}
		}
		if count > maxValues {
			return number
		}
		if flow == 0 {
			block = blockScalar(line)
		}
	}
	return 0
}

// header matches the line before a block scalar: indentation and dashes of list items, a plain key
// if there is one, and the indicator.
var header = regexp.MustCompile(`^((?: |- )*)([\w./-]+ *:)? *[|>][-+0-9]*[ \t]*(#.*)?\r?\n?$`)

// blockScalar returns the column that the lines of a block scalar after this line exceed; -1: there
// is no block scalar.
func blockScalar(line []byte) int {
	m := header.FindSubmatch(line)
	if m == nil {
		return -1
	}
	column := len(m[1])
	if len(m[2]) == 0 { // the last dash
		column = bytes.LastIndexByte(m[1], '-')
	}
	return column
}

var yamlLine = regexp.MustCompile(`^line (\d+): `)

// notYAML returns the error of the YAML library with its line.
func notYAML(err error) *strict.FieldError {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	line := 0
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		line, _ = strconv.Atoi(m[1])
		text = text[len(m[0]):]
	}
	return fieldError(line, "not YAML: %s", clipLong(text))
}

// jsonDocument calls do with the nodes of a valid JSON text.
func jsonDocument(text []byte, do func(*yaml.Node) bool) *strict.FieldError {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	r := &jsonReader{dec: dec, text: text, line: 1}
	n, err := r.value(0)
	if err != nil {
		return fieldError(r.line, "%w", err)
	}
	do(n)
	return nil
}

// jsonReader makes nodes of JSON, as the YAML library does of YAML.
type jsonReader struct {
	dec    *json.Decoder
	text   []byte
	offset int // up to which lines were counted
	line   int
	values int
}

func (r *jsonReader) token() (json.Token, error) {
	t, err := r.dec.Token()
	at := int(r.dec.InputOffset())
	r.line += bytes.Count(r.text[r.offset:at], []byte("\n"))
	r.offset = at
	return t, err
}

func (r *jsonReader) value(depth int) (*yaml.Node, error) {
	if r.values++; r.values > maxValues || depth > maxDepth {
		return nil, fmt.Errorf("more than %d values, or more than %d levels", maxValues, maxDepth)
	}
	t, err := r.token()
	if err != nil {
		return nil, err
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: r.line}
	switch t := t.(type) {
	case nil:
		n.Tag, n.Value = "!!null", "null"
	case bool:
		n.Tag, n.Value = "!!bool", strconv.FormatBool(t)
	case string:
		n.Tag, n.Value, n.Style = "!!str", t, yaml.DoubleQuotedStyle
	case json.Number:
		n.Tag, n.Value = "!!int", t.String()
		if strings.ContainsAny(n.Value, ".eE") {
			n.Tag = "!!float"
		}
	case json.Delim:
		n.Kind, n.Tag = yaml.MappingNode, "!!map"
		if t == '[' {
			n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
		}
		for r.dec.More() { // keys of objects are values too
			item, err := r.value(depth + 1)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, item)
		}
		if _, err := r.token(); err != nil { // the closing delimiter
			return nil, err
		}
	}
	return n, nil
}

package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

// Document is a YAML file of one kind: one document with a mapping.
type Document struct {
	APIVersion, Kind string // named in errors
	SecondOnly       bool   // only the second of further documents is checked
	// FurtherFirst reports a further document before a first one that is not a mapping, and on the
	// line of its content instead of its "---".
	FurtherFirst bool
}

// SyntaxError reports a text that is not YAML.
type SyntaxError struct{ Err error }

// Error returns the library's message after "not YAML: ".
func (e *SyntaxError) Error() string { return "not YAML: " + e.Err.Error() }

// Unwrap returns the library's error.
func (e *SyntaxError) Unwrap() error { return e.Err }

// Root returns the file's mapping. The error is a *SyntaxError, or a *FieldError with a line.
func (f *Document) Root(text []byte) (*yaml.Node, error) {
	var doc yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(withoutEscapedSlashes(text)))
	if err := d.Decode(&doc); errors.Is(err, io.EOF) {
		err := fmt.Errorf("the file is empty: want apiVersion: %s, kind: %s", f.APIVersion, f.Kind)
		return nil, &FieldError{Line: 1, Err: err}
	} else if err != nil {
		return nil, &SyntaxError{err}
	}
	root := doc.Content[0]
	var notMapping error
	if root.Kind != yaml.MappingNode {
		err := fmt.Errorf("want a mapping such as \"kind: %s\"", f.Kind)
		notMapping = &FieldError{Line: root.Line, Err: err}
	}
	if notMapping != nil && !f.FurtherFirst {
		return nil, notMapping
	}
	if err := f.rejectFurther(d); err != nil {
		return nil, err
	}
	return root, notMapping
}

// withoutEscapedSlashes returns a JSON text with / instead of \/, which JSON allows and the YAML
// library does not. Other texts are unchanged.
func withoutEscapedSlashes(text []byte) []byte {
	if !bytes.Contains(text, []byte(`\/`)) || !json.Valid(text) {
		return text
	}
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' { // an escape of two characters begins, in a valid text only within strings
			if i++; text[i] != '/' {
				out = append(out, '\\')
			}
		}
		out = append(out, text[i])
	}
	return out
}

// rejectFurther rejects documents with content after the first. A trailing "---" has no content.
func (f *Document) rejectFurther(d *yaml.Decoder) error {
	for {
		var more yaml.Node
		switch err := d.Decode(&more); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return &SyntaxError{err}
		}
		line := more.Line
		if f.FurtherFirst {
			line = more.Content[0].Line
		}
		if more.Content[0].Tag != "!!null" {
			return &FieldError{Line: line, Err: errors.New("more than one document in the file")}
		}
		if f.SecondOnly {
			return nil
		}
	}
}

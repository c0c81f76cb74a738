package podjson

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"
)

// Bounds of YAML. Unlike a JSON decoder, a YAML parser makes a node of a few hundred bytes from two
// characters. An ordinary pod has some hundred nodes, and one with all that an API server adds some
// thousand.
const (
	MaxYAML    = 256 << 10 // bytes
	maxYAMLs   = 10_000    // characters that may begin a node
	startsNode = ",:-?[{\n"
)

// YAML converts the YAML of one pod to JSON, like kubectl. It rejects text that is not one document
// with content, duplicate keys, and aliases, because a few aliases can expand to more text than
// fits in memory. Errors have the line.
func YAML(text []byte) ([]byte, error) {
	if len(text) > MaxYAML {
		return nil, fmt.Errorf("%w: more than %d bytes of YAML for one pod: send it as JSON (kubectl "+
			"... -o json)", ErrTooLarge, MaxYAML)
	}
	starts := 0
	for _, c := range []byte(startsNode) {
		starts += bytes.Count(text, []byte{c})
	}
	if starts > maxYAMLs {
		return nil, fmt.Errorf("%w: more than about %d values of YAML for one pod: send it as JSON "+
			"(kubectl ... -o json)", ErrTooLarge, maxYAMLs)
	}
	pod, preceded, err := document(text)
	if err != nil {
		return nil, err
	}
	if a := alias(pod); a != nil {
		return nil, fmt.Errorf("line %d: alias *%s not supported: write its content instead", a.Line,
			clip(a.Value))
	}
	if preceded {
		if text = textFrom(text, pod.Line); text == nil {
			return nil, fmt.Errorf("line %d: document without --- at its beginning: want one pod",
				pod.Line)
		}
	}
	raw, err := sigsyaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, notYAML(err)
	}
	return raw, nil
}

// document returns the one document of a text that has content. Tools write further documents
// without content: after a --- at the end, or with a comment in front (Helm). preceded reports
// whether a document without content precedes the returned one.
func document(text []byte) (pod *yaml.Node, preceded bool, err error) {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var next yaml.Node
		switch err := dec.Decode(&next); {
		case errors.Is(err, io.EOF) && pod == nil:
			return nil, false, errors.New("empty text: want one pod")
		case errors.Is(err, io.EOF):
			return pod, preceded, nil
		case err != nil:
			return nil, false, notYAML(err)
		}
		empty := len(next.Content) == 1 && next.Content[0].ShortTag() == "!!null" &&
			next.Content[0].Value == ""
		switch {
		case !empty && pod != nil:
			return nil, false, fmt.Errorf("line %d: a second document: want one pod", next.Line)
		case !empty:
			pod = &next
		case pod == nil:
			preceded = true
		}
	}
}

// textFrom returns the text from the document that begins on a line, with the same line numbers.
// nil: the line does not begin with ---, or YAML counts lines differently, by Unicode line breaks.
func textFrom(text []byte, line int) []byte {
	at := 0
	for range line - 1 {
		n := bytes.IndexByte(text[at:], '\n')
		if n < 0 {
			return nil
		}
		at += n + 1
	}
	if !bytes.HasPrefix(text[at:], []byte("---")) {
		return nil
	}
	return append(bytes.Repeat([]byte("\n"), line-1), text[at:]...)
}

// alias returns the first alias in a document; nil: none.
func alias(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n
	}
	for _, child := range n.Content {
		if a := alias(child); a != nil {
			return a
		}
	}
	return nil
}

// notYAML puts a parser's message on one line, without redundant prefixes.
func notYAML(err error) error {
	text := err.Error()
	for _, prefix := range []string{"error converting YAML to JSON: ", "yaml: ", "unmarshal errors:"} {
		text = strings.TrimPrefix(text, prefix)
	}
	return fmt.Errorf("not YAML: %s", clipLong(strings.Join(strings.Fields(text), " ")))
}

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

// Bounds of YAML. A parser makes a node of a few hundred bytes of two characters of text, and a
// decoder of JSON none: an ordinary pod has some hundred nodes, and one with all that an API server
// adds some thousand.
const (
	MaxYAML    = 256 << 10 // bytes
	maxYAMLs   = 10_000    // characters that may begin a node
	startsNode = ",:-?[{\n"
)

// YAML makes JSON of the YAML of one pod, as kubectl does. It refuses what is not one document with
// content, a key that is there twice, and aliases: a few of these stand for more text than there is
// memory. Errors have the line.
func YAML(text []byte) ([]byte, error) {
	if len(text) > MaxYAML {
		return nil, fmt.Errorf("%w: a pod may have %d bytes of YAML: send it as JSON (kubectl ... -o "+
			"json)", ErrTooLarge, MaxYAML)
	}
	starts := 0
	for _, c := range []byte(startsNode) {
		starts += bytes.Count(text, []byte{c})
	}
	if starts > maxYAMLs {
		return nil, fmt.Errorf("%w: a pod may have about %d values in YAML: send it as JSON (kubectl "+
			"... -o json)", ErrTooLarge, maxYAMLs)
	}
	pod, before, err := document(text)
	if err != nil {
		return nil, err
	}
	if a := alias(pod); a != nil {
		return nil, fmt.Errorf("line %d: an alias, *%s: write out what it stands for", a.Line,
			clip(a.Value))
	}
	if before {
		if text = from(text, pod.Line); text == nil {
			return nil, fmt.Errorf("line %d: a document that does not begin with ---: want one pod",
				pod.Line)
		}
	}
	raw, err := sigsyaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, notYAML(err)
	}
	return raw, nil
}

// document is the one document of a text that has content. Tools leave some without: a --- at the
// end, or with a comment in front (Helm). before: there are some before it.
func document(text []byte) (pod *yaml.Node, before bool, err error) {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var next yaml.Node
		switch err := dec.Decode(&next); {
		case errors.Is(err, io.EOF) && pod == nil:
			return nil, false, errors.New("there is no pod: the text is empty")
		case errors.Is(err, io.EOF):
			return pod, before, nil
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
			before = true
		}
	}
}

// from is a text from the document on that begins on a line; the lines have the same numbers. nil:
// it does not begin there with ---, or YAML counts the lines in another way, by the breaks of
// Unicode.
func from(text []byte, line int) []byte {
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

// alias is the first one in a document; nil: there is none.
func alias(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n
	}
	for _, of := range n.Content {
		if a := alias(of); a != nil {
			return a
		}
	}
	return nil
}

// notYAML has a parser's words on one line, without those that say again where they come from.
func notYAML(err error) error {
	text := err.Error()
	for _, prefix := range []string{"error converting YAML to JSON: ", "yaml: ", "unmarshal errors:"} {
		text = strings.TrimPrefix(text, prefix)
	}
	return fmt.Errorf("not YAML: %s", clipLong(strings.Join(strings.Fields(text), " ")))
}

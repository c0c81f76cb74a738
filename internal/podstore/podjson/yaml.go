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

// Bounds of YAML. A parser makes a node of a few hundred bytes of two characters of text, and a decoder of JSON none: an ordinary pod has
// some hundred nodes, and one with all that an API server adds some thousand.
const (
	MaxYAML    = 256 << 10 // bytes
	maxYAMLs   = 10_000    // characters that may begin a node
	startsNode = ",:-?[{\n"
)

// YAML makes JSON of the YAML of one pod, as kubectl does. It refuses what is not one document, a key that is there twice, and aliases: a
// few of these stand for more text than there is memory. Errors have the line.
func YAML(text []byte) ([]byte, error) {
	if len(text) > MaxYAML {
		return nil, fmt.Errorf("%w: a pod may have %d bytes of YAML: send it as JSON", ErrTooLarge, MaxYAML)
	}
	starts := 0
	for _, c := range []byte(startsNode) {
		starts += bytes.Count(text, []byte{c})
	}
	if starts > maxYAMLs {
		return nil, fmt.Errorf("%w: a pod may have about %d values in YAML: send it as JSON", ErrTooLarge, maxYAMLs)
	}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var first, second yaml.Node
	switch err := dec.Decode(&first); {
	case errors.Is(err, io.EOF):
		return nil, errors.New("there is no pod: the text is empty")
	case err != nil:
		return nil, notYAML(err)
	}
	switch err := dec.Decode(&second); {
	case err == nil:
		return nil, fmt.Errorf("line %d: a second document: want one pod", second.Line)
	case !errors.Is(err, io.EOF):
		return nil, notYAML(err)
	}
	if a := alias(&first); a != nil {
		return nil, fmt.Errorf("line %d: an alias, *%s: write out what it stands for", a.Line, clip(a.Value))
	}
	raw, err := sigsyaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, notYAML(err)
	}
	return raw, nil
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

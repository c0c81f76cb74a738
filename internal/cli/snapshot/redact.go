package snapshot

import (
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"jettison/internal/node/config"
)

// secret matches names of fields that may hold a secret. Names that end with File, Path or Dir hold
// the location of one.
var secret = regexp.MustCompile(`(?i)token|password|passwd|secret|credential|privatekey|apikey`)

const hidden = "(redacted)"

// redacted returns all fields of a configuration as YAML, without values that may be secrets.
func redacted(c *config.Loaded) ([]byte, error) {
	var root yaml.Node
	if err := root.Encode(c.Config); err != nil {
		return nil, err
	}
	hide(&root, false)
	text, err := yaml.Marshal(&root)
	if err != nil {
		return nil, err
	}
	return append([]byte("# from "+strings.Join(strings.Fields(c.From), " ")+"\n"), text...), nil
}

// hide replaces each value below a name that may be a secret; all replaces every value.
func hide(n *yaml.Node, all bool) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			name := n.Content[i].Value
			location := strings.HasSuffix(name, "File") || strings.HasSuffix(name, "Path") ||
				strings.HasSuffix(name, "Dir")
			hide(n.Content[i+1], all || secret.MatchString(name) && !location)
		}
	case yaml.ScalarNode:
		if all && n.Value != "" {
			n.SetString(hidden)
		}
	default:
		for _, child := range n.Content {
			hide(child, all)
		}
	}
}
